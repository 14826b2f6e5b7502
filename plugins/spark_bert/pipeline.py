"""The pipeline as a task group with one Airflow task per stage."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from airflow.sdk import Context, TaskGroup

from include.experiment import Experiment
from include.named import require_threshold
from include.stages import PIPELINE, STAGES, BadInput
from spark_bert.notices import Notice
from spark_bert.operators.base import StageOperator
from spark_bert.params import from_form
from spark_bert.pools import pool
from spark_bert.retries import RETRIES, StageRetries

#: The default_args of every Dag.
DEFAULTS: dict[str, Any] = {
    "owner": "spark-bert",
    "retries": RETRIES,
    "retry_policy": StageRetries(),
    # This delay applies when Airflow cannot consult the policy: after a worker was lost, or while Airflow's API server
    # does not answer. Airflow doubles it with every retry.
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=5),
    "on_failure_callback": Notice("failure"),
}
#: The operator of each value of $SPARK_BERT_RUNTIME. The value is also the name of the operator's module.
_RUNTIMES = {
    "process": "ProcessStageOperator",
    "docker": "DockerStageOperator",
    "kubernetes": "KubernetesStageOperator",
}


def pipeline(last: str = PIPELINE[-1], experiment_of: Callable[[Context], Experiment] = from_form) -> TaskGroup:
    """Add the pipeline of include/stages.py to the Dag that is being built.

    The stages run one after the other, even where one does not read the artifact of the one before. For example,
    predict does not read the gate's verdict but must not run after a failed gate.

    Args:
        last: the last stage to add.
        experiment_of: returns the experiment of a run from the context of an Airflow task.
    """
    stages = PIPELINE[: PIPELINE.index(last) + 1]
    if "gate" in stages:
        experiment_of = _with_threshold(experiment_of)
    with TaskGroup("pipeline", prefix_group_id=False, tooltip=f"from raw text to {last}") as group:
        before = None
        for name in stages:
            task = stage_task(name, experiment_of=experiment_of)
            if before is not None:
                before >> task
            before = task
    return group


def _with_threshold(experiment_of: Callable[[Context], Experiment]) -> Callable[[Context], Experiment]:
    """Refuse an experiment without a threshold when the run's first stage starts, instead of after its training."""
    return lambda context: require_threshold(experiment_of(context))


def stage_task(stage: str, **keywords: Any) -> StageOperator:
    """Add an Airflow task that runs the stage in the deployment's runtime to the Dag that is being built."""
    return _operator()(task_id=stage, stage=stage, pool=pool(stage), doc_md=STAGES[stage].does, **keywords)


def track(**keywords: Any) -> StageOperator:
    """Add the stage track, which writes the run to MLflow, as the last Airflow task of the Dag.

    It is a teardown so that it also runs after failures and does not decide the state of the run: the run fails if its
    gate has failed, and succeeds if only track has failed.
    """
    task = stage_task("track", **keywords)
    task.as_teardown(on_failure_fail_dagrun=False)
    return task


def _operator() -> type[StageOperator]:
    """Return the runtime's operator. Only its module is imported, because the other runtimes need not be installed."""
    module = importlib.import_module(f"spark_bert.operators.{runtime()}")
    return cast(type[StageOperator], getattr(module, _RUNTIMES[runtime()]))


def runtime() -> str:
    """Return the runtime in which the deployment runs stages: `process`, or the value of $SPARK_BERT_RUNTIME.

    Raises:
        BadInput: if the value is not a runtime.
    """
    name = os.environ.get("SPARK_BERT_RUNTIME") or "process"
    if name not in _RUNTIMES:
        raise BadInput(f"SPARK_BERT_RUNTIME={name!r} is not a runtime: write one of {', '.join(_RUNTIMES)}")
    return name
