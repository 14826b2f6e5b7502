"""The Dag `rollback`: makes the previous champion the champion again."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from spark_bert.dag.params import explain, form
from spark_bert.dag.pipeline import DEFAULTS, stage_task
from spark_bert.retrain.retraining import EXPERIMENT

PARAMS = form(EXPERIMENT, only=("data.task", "dataset.name"))
DOC = f"""
Moves the alias `champion` in MLflow's registry back to the version that the current champion replaced, if the files of
that version are intact. The other version stays in the registry, tagged with the time. `make rollback` does the same.

{explain(PARAMS)}
"""

with DAG(
    "rollback",
    description="Make the previous champion the champion again.",
    doc_md=DOC,
    params=PARAMS,
    schedule=None,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=1),
    default_args=DEFAULTS,
    tags=["spark-bert", "retraining"],
) as dag:
    stage_task("rollback")
