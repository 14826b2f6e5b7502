"""Training a model that is divided among ranks: by features, by layers, or by parts of every weight."""
