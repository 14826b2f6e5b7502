"""What `make run` prints."""
