"""A strict check of a submission zip that reads nothing but the archive itself."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from include.glue import Task
from include.stages import BadInput
from tasks.stages.pipeline.export.predictions_file import DECIMALS, HEADER, Array, is_glue

_SCORE = re.compile(rf"-?\d+\.\d{{{DECIMALS}}}")
_ROUNDING = 0.5 * 10**-DECIMALS  # the bounds of a score range may need more than DECIMALS decimals


@dataclass(frozen=True)
class Expected:
    """The expected content of a file in the archive: one prediction per test row, in this order.

    Attributes:
        task: The task.
        indices: The indices of the test rows, [n].
    """

    task: Task
    indices: Array


def check_submission(archive: Path, expected: Mapping[str, Expected]) -> None:
    """Read a submission zip and check every line of every file.

    Args:
        archive: The archive.
        expected: File name to expected content.

    Raises:
        BadInput: At the first error. The message names the file and the line.
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
        raise BadInput(f"{archive.name} must contain each of {', '.join(sorted(expected))} once: check {wrong[0]}")


def _check_file(label: str, content: bytes, expected: Expected) -> None:
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
        _check_score(label, fields[1], task)
    elif unknown := set(task.labels_in(fields[1])) - set(task.labels):
        raise BadInput(f"{label}: {min(unknown)!r} is not a label of {task.name} ({', '.join(task.labels)})")


def _check_score(label: str, text: str, task: Task) -> None:
    low, high = task.score_range or (float("-inf"), float("inf"))
    if not _SCORE.fullmatch(text) or not low - _ROUNDING <= float(text) <= high + _ROUNDING:
        raise BadInput(f"{label}: {text!r} is not a score from {low} to {high} with {DECIMALS} decimals")
