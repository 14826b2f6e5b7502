"""Train: fine-tune the encoder with Horovod and keep the best model."""
