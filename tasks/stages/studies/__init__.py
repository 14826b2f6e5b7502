"""The stages that compare runs."""
