"""What runs inside a stage's process or container. Never imports airflow."""
