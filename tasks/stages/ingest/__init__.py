"""Ingest: add the rows of new files to a dataset, as a new version that never changes."""
