"""The stages that a model and a dataset pass through after a training."""
