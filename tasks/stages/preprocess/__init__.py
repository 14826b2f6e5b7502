"""Preprocess: from validated text to token ids that a trainer can memory-map, on Spark."""
