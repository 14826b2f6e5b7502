"""The stage search: looks for good settings of the trainings within a budget."""
