"""The Dag `retention`: lists what nothing refers to any more, and removes it where the deployment asks for that."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable

from spark_bert.dag.params import explain
from spark_bert.dag.pipeline import DEFAULTS, stage_task
from spark_bert.dag.retention import AFTER, logs, retention_experiment, retention_form

PARAMS = retention_form()
DOC = f"""
Every Sunday at 05:00 UTC, **prune** lists the runs, artifacts and checkpoints, with their sizes, that were not used for
`retention.days` days and that no younger run, registered model, dataset or study refers to. **logs** does the same for
the logs of Airflow tasks. Both remove what they list only if the deployment sets `{AFTER}` to a number of days, or if
the run sets `retention.remove`. prune removes nothing while MLflow, which knows the champions, does not answer.

{explain(PARAMS)}
"""

with DAG(
    "retention",
    description="List or remove the runs, artifacts and logs that are no longer needed.",
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
    stage_task("prune", experiment_of=retention_experiment)
    logs()
