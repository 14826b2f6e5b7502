"""Access to MLflow: its runs (tracked_run, record, server) and its model registry (registry, champions, loading)."""
