"""The runs whose predictions go into one zip."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from include.artifacts import Artifact
from include.experiment import Experiment
from include.glue import Task
from include.named import build
from include.runs import Run
from include.stages import BadInput
from tasks.stages.export.sheet import Sheet, from_predictions, is_glue


@dataclass(frozen=True)
class Member:
    """A run's predictions.

    Attributes:
        run: its name as submission.runs has it; "" for the run that exports, unless it began with another's stages.
        task: what it predicts.
        validate: the artifact with its test split.
        predict: the artifact with its predictions.
    """

    run: str
    task: Task
    validate: Artifact
    predict: Artifact

    def sheet(self) -> Sheet:
        """Its predictions, checked against its test split row by row."""
        self._whole_test()
        test = pq.read_table(self.validate.path / "test.parquet", columns=["row"])
        predicted = pq.read_table(self.predict.path / "predictions.parquet", columns=["row", "prediction"])
        columns = (test["row"], predicted["row"], predicted["prediction"])
        return from_predictions(self.task, *(column.to_numpy() for column in columns))

    def _whole_test(self) -> None:
        """GLUE wants a line for every row of its file, also for one that validate could not use."""
        if not is_glue(self.task):
            return
        with (self.validate.path / "quarantine.jsonl").open(encoding="utf-8") as lines:
            aside = next((entry for entry in map(json.loads, lines) if entry["split"] == "test"), None)
        if aside:
            raise BadInput(
                f"{aside['file']} line {aside['line']} was set aside ({aside['reason']}), but GLUE wants a "
                f"prediction for every row of {self.task.name}'s test file: repair the line and run validate again"
            )


def other_runs(experiment: Experiment, run: Run) -> list[Member]:
    """The runs that submission.runs names: beside this one, or by path when the name has a slash.

    Raises BadInput when one of them has no finished predictions.
    """
    return [_member(name, run) for name in experiment.submission.runs]


def refuse_failed_gate(run: Run) -> None:
    """Raise BadInput when the run's model has not passed its gate: it is not shipped by another way either."""
    gate = run.record()["stages"].get("gate", {})
    if gate.get("exit_code"):
        raise BadInput(f"the run {run.folder.name} is not exported: {gate['message']}")


def _member(name: str, run: Run) -> Member:
    other = Run(Path(name) if "/" in name else run.folder.parent / name)
    record = other.record()
    if "experiment" not in record:
        raise BadInput(f"submission.runs names {name}, but {other.file} does not exist: run that experiment first")
    refuse_failed_gate(other)
    experiment = build(record["experiment"], f"the experiment of the run {name}")
    return Member(name, experiment.task, other.artifact("validate", experiment), other.artifact("predict", experiment))
