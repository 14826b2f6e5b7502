"""Rollback: the way back from a promotion."""
