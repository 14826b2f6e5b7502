"""The quality panel, which Airflow shows in frames: a FastAPI app (app.py), and plain pages (static/)."""
