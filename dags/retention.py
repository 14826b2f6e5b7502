"""The Dag retention: what nothing refers to any more is listed, and removed where the deployment says so."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable

from spark_bert.params import explain
from spark_bert.pipeline import DEFAULTS, stage_task
from spark_bert.retention import AFTER, asked_retention, logs, retention_form

PARAMS = retention_form()
DOC = f"""
Every Sunday at 5 (UTC), **prune** lists the runs, artifacts and checkpoints that no younger run, registered model,
dataset or study refers to and that nobody has used for `retention.days` days, with their sizes; **logs** does the same
for the logs of tasks. They are removed only where the deployment sets `{AFTER}` to a number of days, or a run says
`retention.remove`. While MLflow, which knows the champions, does not answer, nothing is removed.

{explain(PARAMS)}
"""

with DAG(
    "retention",
    description="List, or remove, what nothing refers to any more.",
    doc_md=DOC,
    params=PARAMS,
    schedule=CronTriggerTimetable("0 5 * * 0", timezone="UTC"),
    catchup=False,
    is_paused_upon_creation=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=12),
    default_args=DEFAULTS,
    tags=["spark-bert", "operations"],
) as dag:
    stage_task("prune", experiment_of=asked_retention)
    logs()
