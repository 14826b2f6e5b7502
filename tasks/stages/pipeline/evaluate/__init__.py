"""The stage evaluate: computes the metrics of the dev split, analyzes them, and writes a report."""
