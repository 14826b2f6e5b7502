"""The stage study: compares the arms of an ablation in one report."""
