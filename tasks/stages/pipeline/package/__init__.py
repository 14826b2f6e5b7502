"""The stage package: the model in faster forms, each checked against PyTorch, with what MLflow needs to load it."""
