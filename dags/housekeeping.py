"""The Dag `housekeeping`: stops the containers and pods that earlier runs have left behind."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from spark_bert.dag.pipeline import DEFAULTS
from spark_bert.operators.stopping import end_orphans, may_outlive

DOC = """
Every hour, **end_orphans** stops and removes the containers or pods of this deployment whose Airflow task has ended.
They are left behind when a worker is killed before it can stop them, or is lost during the last try of an Airflow task.
A training that is stopped continues from its checkpoint when its Airflow task is cleared. Where stages run as
processes, the Dag does not start.
"""

with DAG(
    "housekeeping",
    description="Stop the containers and pods that earlier runs have left behind.",
    doc_md=DOC,
    schedule="@hourly" if may_outlive() else None,
    catchup=False,
    is_paused_upon_creation=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=1),
    default_args=DEFAULTS,
    tags=["spark-bert", "operations"],
) as dag:
    end_orphans()
