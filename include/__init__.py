"""The contract that Airflow and the stages share. Standard library, pydantic and yaml only."""
