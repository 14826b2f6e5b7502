"""The stage challenge: compares the new model, the challenger, with the champion on the same dev rows."""
