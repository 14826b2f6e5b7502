"""Register: enter a model that has passed into MLflow's registry, with the evidence for it."""
