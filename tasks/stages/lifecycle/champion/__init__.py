"""The stage champion: finds and verifies the current champion, which challenge compares the new model with."""
