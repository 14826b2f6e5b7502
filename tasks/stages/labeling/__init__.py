"""The stages that label rows with a trained model."""
