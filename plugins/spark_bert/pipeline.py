"""The pipeline as one task group: every stage is a task, each after those whose artifacts it reads."""

from __future__ import annotations

import importlib
import os
from typing import cast

from airflow.sdk import TaskGroup

from include.stages import STAGES
from spark_bert.operators.base import StageOperator

#: What $SPARK_BERT_RUNTIME may say, each with a file of its own below operators/.
_RUNTIMES = {
    "process": "ProcessStageOperator",
    "docker": "DockerStageOperator",
    "kubernetes": "KubernetesStageOperator",
}


def pipeline() -> TaskGroup:
    """The stages of include/stages.py, in order, inside the Dag that is being built.

    One after the other: predict reads no verdict, but must not run when the gate has failed.
    """
    operator = _operator()
    with TaskGroup("pipeline", prefix_group_id=False, tooltip="from raw text to a submission") as group:
        before = None
        for stage in STAGES.values():
            task = operator(task_id=stage.name, stage=stage.name, doc_md=stage.does)
            if before is not None:
                before >> task
            before = task
    return group


def _operator() -> type[StageOperator]:
    """The operator of the deployment's runtime; only its file is imported, for the others need not be installed."""
    runtime = os.environ.get("SPARK_BERT_RUNTIME") or "process"
    if runtime not in _RUNTIMES:
        raise ValueError(f"SPARK_BERT_RUNTIME={runtime!r}: write one of {', '.join(_RUNTIMES)}")
    module = importlib.import_module(f"spark_bert.operators.{runtime}")
    return cast(type[StageOperator], getattr(module, _RUNTIMES[runtime]))
