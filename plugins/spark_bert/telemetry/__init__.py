"""What leaves Airflow about its runs: metrics, traces, lineage, notices."""
