"""Prune: find, and remove if told to, what nothing in a home refers to any more."""
