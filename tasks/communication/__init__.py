"""How ranks share gradients: the ring, the parameter server, hosts first, and what compresses what they send."""
