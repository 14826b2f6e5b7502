"""What Airflow gains: operators for the stages, their task group, the trigger form and the artifact files."""
