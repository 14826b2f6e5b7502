"""The submission zip: the predictions files, the archive, and a strict check that reads nothing but the archive."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from include.glue import SUBMISSION_TASKS, Task
from include.stages import BadInput
from tasks.encoder.windows import Array

HEADER = "index\tprediction"
DECIMALS = 3  # of a score, as in the files of the GLUE baselines
_SCORE = re.compile(rf"-?\d+\.\d{{{DECIMALS}}}")
_ROUNDING = 0.5 * 10**-DECIMALS  # the bounds of a score range may need more than DECIMALS decimals
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that zip supports; the current time would change the bytes
_UNIX, _READABLE = 3, 0o100644 << 16


@dataclass(frozen=True)
class PredictionsFile:
    """A predictions file in GLUE's format: the header index<TAB>prediction, followed by one line per test row.

    A value is a label as written in the task's own files, a cell of labels, or a formatted score.
    """

    task: Task
    indices: Array
    values: list[str]

    def encode(self) -> bytes:
        """Return the file's bytes."""
        lines = [f"{index}\t{value}" for index, value in zip(self.indices.tolist(), self.values, strict=True)]
        return "\n".join([HEADER, *lines, ""]).encode("utf-8")


def from_predictions(task: Task, test_rows: Array, rows: Array, predicted: Array) -> PredictionsFile:
    """Create the file from class ids, scores, or cells of labels, [n], for every test row once, in any order."""
    order = np.argsort(rows, kind="stable")
    found = rows[order]
    for problem, wrong in (
        ("is predicted twice", found[1:][found[1:] == found[:-1]]),
        ("has no prediction", np.setdiff1d(test_rows, found)),
        ("is predicted but not in the test split", np.setdiff1d(found, test_rows)),
    ):
        if wrong.size:
            raise BadInput(f"{task.name}: test row {wrong[0]} {problem}: run the stage predict again")
    return PredictionsFile(task, test_rows, _values(task, predicted[order]))


def placeholder(task: Task) -> PredictionsFile:
    """Create a valid file for a task without a model: all rows get the last label or the middle of the score range."""
    if task.test_rows is None:
        raise ValueError(f"{task.name} has no published test split, so there is no placeholder for it")
    middle = np.full(task.test_rows, sum(task.score_range) / 2 if task.score_range else task.outputs - 1)
    predicted = middle if task.kind == "regression" else middle.astype(np.int64)
    return PredictionsFile(task, np.arange(task.test_rows), _values(task, predicted))


def is_glue(task: Task) -> bool:
    """Return whether a GLUE submission contains a file for this task."""
    return task.name in SUBMISSION_TASKS


def _values(task: Task, predicted: Array) -> list[str]:
    if task.kind == "multilabel":
        return [str(cell) for cell in predicted]
    if not np.isfinite(predicted).all():
        raise BadInput(f"{task.name}: a prediction is not a finite number: run the stage train again")
    if task.kind == "regression":
        low, high = task.score_range or (-np.inf, np.inf)
        rounded = predicted.astype(np.float64).clip(low, high).round(DECIMALS) + 0.0  # + 0.0 avoids "-0.000"
        return [f"{score:.{DECIMALS}f}" for score in rounded]
    if not np.isin(predicted, range(len(task.labels))).all():
        raise BadInput(
            f"{task.name}: a predicted class is not one of its {len(task.labels)} classes: run the stage predict again"
        )
    return [task.labels[label] for label in predicted.tolist()]


def write_archive(archive: Path, files: Mapping[str, bytes]) -> None:
    """Write a zip archive without folders that is reproducible byte by byte. `files` maps names to contents."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, _UNIX, _READABLE
            target.writestr(entry, files[name])


def check_submission(archive: Path, expected: Mapping[str, PredictionsFile]) -> None:
    """Raise BadInput at the first wrong line of a submission zip. Only tasks and indices of `expected` are used."""
    try:
        with zipfile.ZipFile(archive) as source:
            _check_names(archive, source.namelist(), expected)
            for name, wanted in expected.items():
                _check_file(f"{archive.name}: {name}", source.read(name), wanted)
    except (OSError, zipfile.BadZipFile) as error:
        raise BadInput(f"{archive} is not a readable zip: {error}") from error


def _check_names(archive: Path, found: list[str], expected: Mapping[str, PredictionsFile]) -> None:
    if sorted(found) != sorted(expected):
        wrong = sorted(set(found) ^ set(expected)) or sorted(name for name in found if found.count(name) > 1)
        raise BadInput(f"{archive.name} must contain each of {', '.join(sorted(expected))} once: check {wrong[0]}")


def _check_file(label: str, content: bytes, expected: PredictionsFile) -> None:
    header, *lines = _lines(label, content)
    if header != HEADER:
        raise BadInput(f"{label} line 1: the header is {header!r}, not {HEADER!r}")
    if len(lines) != len(expected.indices):
        raise BadInput(f"{label} has {len(lines)} predictions for {len(expected.indices)} test rows")
    indices = expected.indices.tolist()
    if is_glue(expected.task) and indices != list(range(len(lines))):
        raise BadInput(f"{label}: the test rows must be numbered from 0 to {len(lines) - 1} in order, as in GLUE")
    for number, (line, index) in enumerate(zip(lines, indices, strict=True), 2):
        _check_line(f"{label} line {number}", line, index, expected.task)


def _lines(label: str, content: bytes) -> list[str]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{label} is not UTF-8: {error}") from error
    if "\r" in text or not text.endswith("\n"):
        raise BadInput(f"{label}: every line must end with a single line feed")
    return text[:-1].split("\n")


def _check_line(label: str, line: str, index: int, task: Task) -> None:
    fields = line.split("\t")
    if len(fields) != 2:
        raise BadInput(f"{label} has {len(fields)} fields, not 2")
    if fields[0] != str(index):
        raise BadInput(f"{label}: the index is {fields[0]!r}, not {index}")
    if task.kind == "regression":
        low, high = task.score_range or (float("-inf"), float("inf"))
        if not _SCORE.fullmatch(fields[1]) or not low - _ROUNDING <= float(fields[1]) <= high + _ROUNDING:
            raise BadInput(f"{label}: {fields[1]!r} is not a score from {low} to {high} with {DECIMALS} decimals")
    elif unknown := set(task.labels_in(fields[1])) - set(task.labels):
        raise BadInput(f"{label}: {min(unknown)!r} is not a label of {task.name} ({', '.join(task.labels)})")
