"""The listener that creates the pools when Airflow's scheduler, triggerer or Dag processor starts."""

from __future__ import annotations

from airflow.listeners import hookimpl

from spark_bert.dag.pools import make_pools


@hookimpl
def on_starting(component: object) -> None:
    """Create the pools when a component of Airflow starts, unless it is an Airflow task, which has no database."""
    if type(component).__module__ == "airflow.jobs.job":
        make_pools()
