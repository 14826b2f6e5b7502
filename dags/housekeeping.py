"""The Dag housekeeping: ends what earlier runs have left behind."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from spark_bert.orphans import end_orphans
from spark_bert.pipeline import DEFAULTS

DOC = """
Every hour, **end_orphans** stops and removes the containers or pods of this deployment whose task is over: the worker
was killed before it could stop them, or was lost in the task's last try. A training that is stopped so writes a
checkpoint, from which the task goes on when it is cleared. Where stages run as processes there is nothing to do.

It has no parameters and is not paused at first.
"""

with DAG(
    "housekeeping",
    description="End what earlier runs have left behind.",
    doc_md=DOC,
    schedule="@hourly",
    catchup=False,
    is_paused_upon_creation=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=1),
    default_args=DEFAULTS,
    tags=["spark-bert", "operations"],
) as dag:
    end_orphans()
