"""Champion: the model that a new one is held against."""
