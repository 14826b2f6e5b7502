"""The operators that run stages, one per runtime, with a common base class."""
