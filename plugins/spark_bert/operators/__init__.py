"""One operator for each runtime, on one small base."""
