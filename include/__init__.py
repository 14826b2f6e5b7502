"""The contract between Airflow and the stages. It depends only on the standard library, pydantic and PyYAML."""
