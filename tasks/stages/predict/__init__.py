"""Predict: label the test split with the trained model, on Spark."""
