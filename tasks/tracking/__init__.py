"""What the stages that speak with MLflow share: its runs (account, record, server) and its registry of models."""
