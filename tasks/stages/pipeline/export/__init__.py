"""The stage export: writes the predictions in GLUE's format, zips them, and checks the archive."""
