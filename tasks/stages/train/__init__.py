"""The stage train: fine-tunes the encoder with Horovod and keeps the best model."""
