"""What Airflow's scheduler, triggerer and Dag processor do for us when they start: they make the pools."""

from __future__ import annotations

from airflow.listeners import hookimpl

from spark_bert.pools import make_pools


@hookimpl
def on_starting(component: object) -> None:
    """Called in each process that starts. A task is one, too, but has no database."""
    if type(component).__module__ == "airflow.jobs.job":
        make_pools()
