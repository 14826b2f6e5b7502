"""A try of a task as Airflow's worker makes it, without the worker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from spark_bert.dag.params import from_form
from spark_bert.operators.docker import DockerStageOperator

SLICE = {"preprocessing.sample": 0.1}
RUN = "faults"


class Worker:
    """Tries of one task as a worker makes them, all of the same task instance."""

    def __init__(self, stage: str, **conf: Any) -> None:
        self.stage, self.conf = stage, conf
        self.operator: DockerStageOperator | None = None  # of the last try

    def __call__(self, clears: int = 0, **keywords: Any) -> dict[str, Any]:
        """One try: the stage's result. `clears` is how often the run's tasks have been cleared."""
        where = {"dag_id": "finetune", "run_id": RUN}
        instance = SimpleNamespace(
            **where, id=uuid4(), task_id=self.stage, map_index=-1, max_tries=2, try_number=1,
            xcom_push=lambda **_: None, get_task_states=lambda *_, **__: {RUN: {self.stage: "running"}},
        )  # fmt: skip
        params = {"experiment": "movies", **SLICE, **self.conf}
        context: Any = {
            "ti": instance,
            "dag_run": SimpleNamespace(**where, clear_number=clears),
            "params": params,
        }
        operator = self.operator = DockerStageOperator(
            task_id=self.stage, stage=self.stage, experiment_of=from_form, **keywords
        )
        operator.render_template_fields(context)
        result: dict[str, Any] = DockerStageOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]
        return result


def first_record(home: Path) -> Path:
    """The record of the run that the home was made with; faults add runs of their own."""
    return min(home.glob("runs/*/run.json"), key=lambda record: record.stat().st_mtime)
