"""The stage predict: predicts the test split with the trained model."""
