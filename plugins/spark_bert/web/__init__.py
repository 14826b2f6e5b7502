"""What Airflow's web server shows: files, links, the quality panel."""
