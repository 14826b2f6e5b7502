"""The stage study: the arms of an ablation in one report."""
