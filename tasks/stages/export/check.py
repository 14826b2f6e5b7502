"""The strict check of a submission zip, from its bytes alone."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from include.glue import Task
from include.stages import BadInput
from tasks.scoring.metrics import Array
from tasks.stages.export.sheet import DECIMALS, HEADER, is_glue

_SCORE = re.compile(rf"-?\d+\.\d{{{DECIMALS}}}")
_ROUNDING = 0.5 * 10**-DECIMALS  # a score range's end may itself not be writable in three decimals


@dataclass(frozen=True)
class Expected:
    """What a file of the zip must hold: a prediction of the task for each of the test rows, in this order."""

    task: Task
    indices: Array


def check_submission(archive: Path, expected: Mapping[str, Expected]) -> None:
    """Read the zip again and hold every line of every file against what is expected, by file name.

    Raises BadInput with the file and the line at the first thing that is wrong.
    """
    try:
        with zipfile.ZipFile(archive) as source:
            _check_names(archive, source.namelist(), expected)
            for name, wanted in expected.items():
                _check_file(f"{archive.name}: {name}", source.read(name), wanted)
    except (OSError, zipfile.BadZipFile) as error:
        raise BadInput(f"{archive} is not a readable zip: {error}") from error


def _check_names(archive: Path, found: list[str], expected: Mapping[str, Expected]) -> None:
    if sorted(found) != sorted(expected):
        wrong = sorted(set(found) ^ set(expected)) or sorted(name for name in found if found.count(name) > 1)
        raise BadInput(f"{archive.name} must hold {', '.join(sorted(expected))} once each: see {wrong[0]}")


def _check_file(label: str, content: bytes, expected: Expected) -> None:
    header, *lines = _lines(label, content)
    if header != HEADER:
        raise BadInput(f"{label} line 1: the header is {header!r}, not {HEADER!r}")
    if len(lines) != len(expected.indices):
        raise BadInput(f"{label} has {len(lines)} predictions for {len(expected.indices)} test rows")
    indices = expected.indices.tolist()
    if is_glue(expected.task) and indices != list(range(len(lines))):
        raise BadInput(f"{label}: the test rows are not 0 to {len(lines) - 1} in order, as GLUE counts them")
    for number, (line, index) in enumerate(zip(lines, indices, strict=True), 2):
        _check_line(f"{label} line {number}", line, index, expected.task)


def _lines(label: str, content: bytes) -> list[str]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{label} is not UTF-8: {error}") from error
    if "\r" in text or not text.endswith("\n"):
        raise BadInput(f"{label}: every line must end with one line feed, and nothing else")
    return text[:-1].split("\n")


def _check_line(label: str, line: str, index: int, task: Task) -> None:
    fields = line.split("\t")
    if len(fields) != 2:
        raise BadInput(f"{label} has {len(fields)} fields, not 2")
    if fields[0] != str(index):
        raise BadInput(f"{label}: the index is {fields[0]!r}, not {index}")
    if task.kind == "classification" and fields[1] not in task.labels:
        raise BadInput(f"{label}: {fields[1]!r} is no label of {task.name} ({', '.join(task.labels)})")
    if task.kind == "regression":
        _check_score(label, fields[1], task)


def _check_score(label: str, text: str, task: Task) -> None:
    low, high = task.score_range or (float("-inf"), float("inf"))
    if not _SCORE.fullmatch(text) or not low - _ROUNDING <= float(text) <= high + _ROUNDING:
        raise BadInput(f"{label}: {text!r} is no score from {low} to {high} with {DECIMALS} decimals")
