"""The Dag rollback: the champion before this one becomes the champion again."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from spark_bert.params import explain, form
from spark_bert.pipeline import DEFAULTS, stage_task
from spark_bert.retraining import EXPERIMENT

_FIELDS = ("experiment", "data.task", "dataset.name")
PARAMS = {key: param for key, param in form(EXPERIMENT, more=("dataset",)).items() if key in _FIELDS}
DOC = f"""
Moves the alias `champion` of a model in MLflow's registry back to the version that the present one has replaced, once
the files of that version have been checked. The version that it leaves stays in the registry, with the time as a tag.
`make rollback` does the same.

{explain(PARAMS)}
"""

with DAG(
    "rollback",
    description="The champion before this one becomes the champion again.",
    doc_md=DOC,
    params=PARAMS,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=1),
    default_args=DEFAULTS,
    tags=["spark-bert", "retraining"],
) as dag:
    stage_task("rollback")
