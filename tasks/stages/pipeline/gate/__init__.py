"""The stage gate: compares the metrics with the thresholds. A threshold that cannot be checked counts as failed."""
