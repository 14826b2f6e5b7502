"""The runs whose predictions become files of one submission zip."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.artifacts import Artifact
from include.glue import Task
from include.named import build
from include.runs import Run
from include.stages import BadInput
from tasks.stages.pipeline.export.submission import PredictionsFile, from_predictions, is_glue


@dataclass(frozen=True)
class Member:
    """A run with predictions. Its name is "" for the exporting run, unless that continues another run."""

    run: str
    task: Task
    validate: Artifact
    predict: Artifact

    def sheet(self) -> PredictionsFile:
        """Return its predictions as a file for GLUE."""
        self._whole_test()
        test = pq.read_table(self.validate.path / "test.parquet", columns=["row"])
        predicted = pq.read_table(self.predict.path / "predictions.parquet", columns=["row", "prediction"])
        values = predicted["prediction"]
        if self.task.kind == "multilabel":
            values = pc.binary_join(values, self.task.separator)
        return from_predictions(self.task, *(column.to_numpy() for column in (test["row"], predicted["row"], values)))

    def _whole_test(self) -> None:
        """Raise BadInput if validate has quarantined a test row: GLUE requires a prediction for every row."""
        if not is_glue(self.task):
            return
        with (self.validate.path / "quarantine.jsonl").open(encoding="utf-8") as lines:
            aside = next((entry for entry in map(json.loads, lines) if entry["split"] == "test"), None)
        if aside:
            raise BadInput(
                f"{aside['file']} line {aside['line']} was quarantined ({aside['reason']}), but GLUE requires a "
                f"prediction for every row of {self.task.name}'s test file: correct the line and run validate again"
            )


def refuse_failed_gate(run: Run) -> None:
    """Raise BadInput if the run's model has failed its gate, so that its predictions cannot be exported."""
    gate = run.record()["stages"].get("gate", {})
    if gate.get("exit_code"):
        raise BadInput(f"the run {run.folder.name} is not exported: {gate['message']}")


def find_member(name: str, run: Run) -> Member:
    """Find a run that submission.runs names: by its path or, without a slash, in the same folder as `run`."""
    other = Run(Path(name) if "/" in name else run.folder.parent / name)
    record = other.record()
    if "experiment" not in record:
        raise BadInput(f"submission.runs names {name}, but {other.file} does not exist: run that experiment first")
    refuse_failed_gate(other)
    experiment = build(record["experiment"], f"the experiment of the run {name}")
    return Member(name, experiment.task, other.artifact("validate", experiment), other.artifact("predict", experiment))
