"""The stage ingest: adds the rows of new files to a dataset as a new, immutable version."""
