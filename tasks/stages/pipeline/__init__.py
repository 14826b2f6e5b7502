"""The stages of a pipeline, from raw data to a submission."""
