"""The encoder with its head and its inputs, shared by the stages that train or use a model."""
