"""The stage train: fine-tunes the encoder, on Horovod if there are several ranks, and keeps the best model."""
