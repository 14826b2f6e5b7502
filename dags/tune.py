"""The Dag `tune`: searches for better settings of an experiment, and recommends them if a paired test confirms them."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, task_group

from spark_bert.dag.params import explain
from spark_bert.dag.pipeline import DEFAULTS, stage_task
from spark_bert.dag.pools import pool
from spark_bert.studies.search import list_workers, search_experiment, search_form

PARAMS = search_form()
DOC = f"""
Searches for better settings of an experiment until its minutes are spent. Each **trial** is an ordinary run, with its
page in the quality panel: it trains the encoder with settings that Optuna proposes. A trial pauses after a ninth and
after a third of its steps, and goes on only if it is among the best third of the trials that have come as far.

* **search** is a mapped task with one index for each worker. If a worker is killed, the next try of its task goes on
  with its trial. Further runs with the same settings and data go on with the same search.
* **recommend** trains the best trial and the experiment itself with further seeds, and compares them by the paired
  test. It recommends the new settings only if they are better. The button *Search* opens its report;
  experiment.yaml, in the same folder, is the recommended experiment.
* Every worker needs a slot of the pool `{pool("search")}`, which has one unless the deployment has set more. The page
  *Searches* of the quality panel shows the trials while they run.

`airflow dags trigger tune --conf '{{"experiment": "sst2", "search.minutes": 60, "tried.training.epochs": "1 to 3"}}'`

{explain(PARAMS)}
"""

with DAG(
    "tune",
    description="Search for better settings of an experiment, and recommend them if they are better.",
    doc_md=DOC,
    params=PARAMS,
    schedule=None,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=24),
    default_args=DEFAULTS,
    tags=["spark-bert", "search"],
) as dag:

    @task_group(group_id="trials", prefix_group_id=False)
    def work(worker: int) -> None:
        """Work on the search."""
        stage_task("search", experiment_of=search_experiment)

    validated = stage_task("validate", experiment_of=search_experiment)
    working = work.expand(worker=list_workers())
    validated >> working >> stage_task("recommend", experiment_of=search_experiment)
