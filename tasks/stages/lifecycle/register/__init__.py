"""The stage register: adds a model that has passed the gate to MLflow's registry, with the evidence for it."""
