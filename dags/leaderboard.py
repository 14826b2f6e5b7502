"""The Dag `leaderboard`: trains models on tasks with several seeds, and compares all finished runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task_group

from include.experiment import Experiment
from spark_bert.dag.params import explain
from spark_bert.dag.pipeline import AFTER_ALL, DEFAULTS, one_at_a_time, pipeline, stage_task, succeeded
from spark_bert.dag.pools import pool
from spark_bert.studies.leaderboard import arm_experiment, leaderboard_form, list_arms

PARAMS = leaderboard_form()
DOC = f"""
Trains every chosen model on every chosen task with every seed, and compares the models in one table per task: the
metric with an interval over the seeds, McNemar's test against the best model, the time of training, rows per second in
training and in labeling, size, and memory, next to the papers' figures. The button *Leaderboard* on the page of the
last task opens it; leaderboard.md and leaderboard.json are in the same folder.

* Each training is one index of a **mapped** task group and has a run folder of its own. The models of a task share the
  artifacts of its data; trainings of earlier runs take seconds.
* The **gate** accepts every model, since the leaderboard only measures.
* **leaderboard** compares all finished runs of registered tasks on the same data, of this and other Dags, except arms
  of ablations. It also runs if some trainings have failed; the run of the Dag fails then.
* One stage runs at a time, as long as the pool of trainings has one slot. To compare speeds, let nothing else run
  at the same time. `airflow dags trigger leaderboard --conf '{{"tasks": ["SST-2", "CoLA", "STS-B"],
  "data.path": "data/glue"}}'` runs the cheap models on the papers' tasks.

{explain(PARAMS)}
"""

with DAG(
    "leaderboard",
    description="Compare models on tasks with several seeds, next to the papers' figures.",
    doc_md=DOC,
    params=PARAMS,
    schedule=None,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=24),
    default_args=DEFAULTS,
    tags=["spark-bert", "leaderboard"],
) as dag:

    @task_group(group_id="models", prefix_group_id=False)
    def train(arm: dict[str, Any]) -> None:
        """Train, evaluate and time one model."""
        pipeline(last="predict", experiment_of=arm_experiment)

    compared = stage_task("leaderboard", experiment_of=lambda context: Experiment(), trigger_rule=AFTER_ALL)
    train.expand(arm=list_arms()) >> [succeeded(), compared]
    for stage in dag.tasks:
        stage.pool = pool("train")  # one stage at a time, so that none is timed while another computes
    one_at_a_time(dag)
