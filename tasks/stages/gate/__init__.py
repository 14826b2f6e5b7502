"""Gate: hold the metrics against the thresholds. What cannot be checked has not passed."""
