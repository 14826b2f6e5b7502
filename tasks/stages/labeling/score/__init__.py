"""The stage score: labels the rows of any table with a trained model."""
