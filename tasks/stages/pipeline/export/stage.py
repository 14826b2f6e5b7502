"""The stage export: write the predictions file, submission.zip, and submission.json, which describes the archive."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.answers import PREDICTION, probability_columns
from include.artifacts import Artifact, sha256, write_json
from include.experiment import Experiment
from include.glue import SUBMISSION_TASKS, TASKS, Task
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.stages.pipeline.export.submission import (
    PredictionsFile,
    check_submission,
    from_predictions,
    is_glue,
    placeholder,
    write_archive,
)

log = logging.getLogger(__name__)
ARCHIVE = "submission.zip"


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
        more = probability_columns(self.task.label_names) if self.abstained else []
        predicted = pq.read_table(self.predict.path / "predictions.parquet", columns=["row", PREDICTION, *more])
        values = predicted[PREDICTION]
        if self.task.kind == "multilabel":
            values = pc.binary_join(values, self.task.separator)
        if self.abstained:
            values = pc.if_else(pc.is_valid(values), values, most_probable(predicted, self.task))
        return from_predictions(self.task, *(column.to_numpy() for column in (test["row"], predicted["row"], values)))

    @property
    def abstained(self) -> int:
        """The number of rows for which prediction.max_risk allows no answer."""
        result = self.predict.manifest.result
        return int(result["rows"] - result["answered"]) if "answered" in result else 0

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


def most_probable(predicted: pa.Table, task: Task) -> pa.Array:
    """Return the class with the highest probability of each row."""
    columns = [predicted[name].to_numpy() for name in probability_columns(task.label_names)]
    return pa.array(np.argmax(columns, axis=0))


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


@dataclass(frozen=True)
class Plan:
    """The other runs of the submission."""

    members: list[Member]

    def fingerprint(self) -> str:
        """Return the keys of the artifacts that the runs currently refer to."""
        keys = {member.run: [member.validate.manifest.key, member.predict.manifest.key] for member in self.members}
        return json.dumps(keys, sort_keys=True)


def plan(experiment: Experiment, run: Run) -> Plan:
    """Find the other runs of the submission, of which none may have failed its gate."""
    refuse_failed_gate(run)
    return Plan([find_member(name, run) for name in experiment.submission.runs])


def run(context: Context, plan: Plan) -> Outcome:
    """Write, zip and check the predictions of this run and submission.runs, with placeholders for all_tasks."""
    experiment, inputs = context.experiment, context.inputs
    if inputs["predict"].manifest.result.get("rows") == 0:
        log.warning("there is no test file, so there are no predictions to export")
        return Outcome({"rows": 0, "tasks": [], "placeholders": [], "warnings": [], "files": {}})
    origin = str(context.run.record().get("from", ""))  # the run that this one continues, if any
    own = Member(origin, experiment.task, inputs["validate"], inputs["predict"])
    members = _by_file([own, *plan.members])
    sheets = {file: member.sheet() for file, member in members.items()}
    if experiment.submission.all_tasks:
        sheets = _placeholders(members) | sheets
    files = {file: sheet.encode() for file, sheet in sheets.items()}
    (context.output / own.task.submission).write_bytes(files[own.task.submission])
    write_archive(context.output / ARCHIVE, files)
    check_submission(context.output / ARCHIVE, sheets)
    entries = {name: _entry(sheet, members.get(name)) for name, sheet in sorted(sheets.items())}
    warnings = [text for sheet in sheets.values() for text in _warnings(sheet)]
    warnings += [
        f"{file} has the most probable label also for {member.abstained} rows for which prediction.max_risk allows no "
        "answer, because a submission has all rows"
        for file, member in members.items()
        if member.abstained
    ]
    manifest = {"archive": ARCHIVE, "files": entries, "warnings": warnings, "sha256": sha256(context.output / ARCHIVE)}
    write_json(context.output / "submission.json", manifest)
    for warning in warnings:
        log.warning("%s", warning)
    result = {
        "rows": entries[own.task.submission]["rows"],
        "tasks": [entry["task"] for entry in entries.values() if not entry["placeholder"]],
        "placeholders": [entry["task"] for entry in entries.values() if entry["placeholder"]],
        "warnings": warnings,
        "files": {"submission": ARCHIVE, "predictions": own.task.submission, "manifest": "submission.json"},
    }
    return Outcome(result)


def _by_file(members: list[Member]) -> dict[str, Member]:
    """Return file name to run. Raise BadInput if two runs have the same file name, which means the same task."""
    found: dict[str, Member] = {}
    for member in members:
        file = member.task.submission
        if file in found:
            first = found[file].run or "this run"
            raise BadInput(f"{first} and {member.run} both predict {file}: remove one of them from submission.runs")
        found[file] = member
    return found


def _placeholders(members: Mapping[str, Member]) -> dict[str, PredictionsFile]:
    """Create placeholders for the GLUE tasks that no run predicts."""
    strangers = [member.task.name for member in members.values() if not is_glue(member.task)]
    if strangers:
        raise BadInput(
            f"submission.all_tasks creates GLUE's eleven files, but {strangers[0]} is not a GLUE task: "
            "set submission.all_tasks: false"
        )
    tasks = [TASKS[name] for name in SUBMISSION_TASKS]
    return {task.submission: placeholder(task) for task in tasks if task.submission not in members}


def _entry(sheet: PredictionsFile, member: Member | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"task": sheet.task.name, "rows": len(sheet.values), "placeholder": member is None}
    if member is None:
        return entry | {"prediction": sheet.values[0]}
    return entry | {"run": member.run or "this run", "predict": member.predict.manifest.key}


def _warnings(sheet: PredictionsFile) -> list[str]:
    task, rows = sheet.task, len(sheet.values)
    if task.test_rows is None and TASKS[task.name].test_rows:
        return [f"{task.submission} contains predictions for your own files, not for GLUE's {task.name} test split"]
    if task.test_rows in (None, rows):
        return []
    return [f"{task.submission} has {rows} predictions, but GLUE's {task.name} test split has {task.test_rows} rows"]
