"""Labeling rows as they arrive, and watching the labels."""
