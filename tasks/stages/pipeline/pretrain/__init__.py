"""The stage pretrain: adapts the encoder to a domain by masked language modeling on unlabeled text."""
