"""The Airflow side of Spark-BERT: stage operators, pipeline, trigger form, notices and artifact files."""
