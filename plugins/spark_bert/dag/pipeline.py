"""The pipeline as a task group with one Airflow task per stage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Context, TaskGroup, chain

from include.experiment import Experiment
from include.named_experiments import require_threshold
from include.stages import PIPELINE, STAGES
from spark_bert.dag.params import from_form
from spark_bert.dag.pools import pool
from spark_bert.operators.base import StageOperator
from spark_bert.operators.failures import RETRIES, StageRetries
from spark_bert.operators.runtimes import operator
from spark_bert.telemetry.notices import Notice

#: The default_args of every Dag.
DEFAULTS: dict[str, Any] = {
    "owner": "spark-bert",
    "retries": RETRIES,
    "retry_policy": StageRetries(),
    # Where Airflow cannot consult the policy: after a worker was lost, or while Airflow's API server does not answer.
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=5),
    "on_failure_callback": Notice("failure"),
}
#: The trigger rule of a task that also runs if those before it have failed.
AFTER_ALL = "all_done"


def pipeline(last: str = PIPELINE[-1], experiment_of: Callable[[Context], Experiment] = from_form) -> TaskGroup:
    """Add the stages of the pipeline up to `last` to the Dag that is being built."""
    stages = PIPELINE[: PIPELINE.index(last) + 1]
    if "gate" in stages:
        experiment_of = _with_threshold(experiment_of)
    with TaskGroup("pipeline", prefix_group_id=False, tooltip=f"from raw text to {last}") as group:
        # Also where a stage does not read the artifact of the one before: predict must not run after a failed gate.
        chain(*(stage_task(name, experiment_of=experiment_of) for name in stages))
    return group


def _with_threshold(experiment_of: Callable[[Context], Experiment]) -> Callable[[Context], Experiment]:
    """Refuse an experiment without a threshold when the run's first stage starts, instead of after its training."""
    return lambda context: require_threshold(experiment_of(context))


def stage_task(stage: str, **keywords: Any) -> StageOperator:
    """Add an Airflow task that runs the stage in the deployment's runtime to the Dag that is being built."""
    named = {"task_id": stage, "stage": stage, "pool": pool(stage), "doc_md": STAGES[stage].does}
    return operator()(**{**named, "experiment_of": from_form, **keywords})


def one_at_a_time(dag: DAG) -> None:
    """Let trainings make what they share one at a time, so that the first commits it and the others reuse it."""
    for shared in ("validate", "preprocess", "pretrain", "teach"):
        dag.get_task(shared).max_active_tis_per_dag = 1


def succeeded() -> EmptyOperator:
    """Add the Airflow task that decides the state of the run: the run fails unless the one before it succeeds.

    Without it, a last task that also runs after failures, such as track, would hide them.
    """
    return EmptyOperator(task_id="succeeded", doc_md="fail the run if a task before this one has failed")


def track(**keywords: Any) -> StageOperator:
    """Add the stage track as the last one, also after failures, and a task that keeps its failure from failing runs."""
    task = stage_task("track", trigger_rule=AFTER_ALL, **keywords)
    task >> EmptyOperator(task_id="end", trigger_rule=AFTER_ALL, doc_md="end the run, whether or not it is tracked")
    return task
