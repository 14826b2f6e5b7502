"""The stage promote: makes a new model the champion. No other stage does so."""
