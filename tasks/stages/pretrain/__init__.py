"""Pretrain: let the encoder learn a domain's language from unlabelled text, with Horovod."""
