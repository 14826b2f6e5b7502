"""The pipeline as one task group: every stage is a task, each after those whose artifacts it reads."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from airflow.sdk import Context, TaskGroup

from include.experiment import Experiment
from include.stages import PIPELINE, STAGES
from spark_bert.notices import Notice
from spark_bert.operators.base import StageOperator
from spark_bert.params import from_form
from spark_bert.pools import pool
from spark_bert.retries import RETRIES, StageRetries

#: What the tasks of every Dag have in common, as its default_args.
DEFAULTS: dict[str, Any] = {
    "owner": "spark-bert",
    "retries": RETRIES,
    "retry_policy": StageRetries(),
    # Nobody asks the policy after a lost worker, or while Airflow's own API server is away. Airflow doubles this delay.
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=5),
    "on_failure_callback": Notice("failure"),
}
#: What $SPARK_BERT_RUNTIME may say, each with a file of its own below operators/.
_RUNTIMES = {
    "process": "ProcessStageOperator",
    "docker": "DockerStageOperator",
    "kubernetes": "KubernetesStageOperator",
}


def pipeline(last: str = PIPELINE[-1], experiment_of: Callable[[Context], Experiment] = from_form) -> TaskGroup:
    """The pipeline of include/stages.py down to the last stage, in order, inside the Dag that is being built.

    One after the other: predict reads no verdict, but must not run when the gate has failed. `experiment_of`
    finds what a run is.
    """
    with TaskGroup("pipeline", prefix_group_id=False, tooltip=f"from raw text to {last}") as group:
        before = None
        for name in PIPELINE[: PIPELINE.index(last) + 1]:
            task = stage_task(name, experiment_of=experiment_of)
            if before is not None:
                before >> task
            before = task
    return group


def stage_task(stage: str, **keywords: Any) -> StageOperator:
    """The stage as a task of the Dag that is being built, in the deployment's runtime."""
    return _operator()(task_id=stage, stage=stage, pool=pool(stage), doc_md=STAGES[stage].does, **keywords)


def track(**keywords: Any) -> StageOperator:
    """The task after the last: it writes the run to MLflow.

    A teardown comes after failures too, and never decides the run's state: a failed gate stays a failed run, and a run
    whose tracking failed stays a success.
    """
    task = stage_task("track", **keywords)
    task.as_teardown(on_failure_fail_dagrun=False)
    return task


def _operator() -> type[StageOperator]:
    """The operator of the deployment's runtime; only its file is imported, for the others need not be installed."""
    module = importlib.import_module(f"spark_bert.operators.{runtime()}")
    return cast(type[StageOperator], getattr(module, _RUNTIMES[runtime()]))


def runtime() -> str:
    """Where the deployment runs stages: $SPARK_BERT_RUNTIME. Raises ValueError for what is no runtime."""
    name = os.environ.get("SPARK_BERT_RUNTIME") or "process"
    if name not in _RUNTIMES:
        raise ValueError(f"SPARK_BERT_RUNTIME={name!r}: write one of {', '.join(_RUNTIMES)}")
    return name
