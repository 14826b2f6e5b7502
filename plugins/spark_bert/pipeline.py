"""The pipeline as one task group: every stage is a task, each after those whose artifacts it reads."""

from __future__ import annotations

from airflow.sdk import TaskGroup

from include.stages import STAGES
from spark_bert.operators.process import ProcessStageOperator


def pipeline() -> TaskGroup:
    """The stages of include/stages.py, in order, inside the Dag that is being built.

    One after the other: predict reads no verdict, but must not run when the gate has failed.
    """
    with TaskGroup("pipeline", prefix_group_id=False, tooltip="from raw text to a submission") as group:
        before = None
        for stage in STAGES.values():
            task = ProcessStageOperator(task_id=stage.name, stage=stage.name, doc_md=stage.does)
            if before is not None:
                before >> task
            before = task
    return group
