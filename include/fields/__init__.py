"""The sections of an experiment, and the rules that concern a single section."""
