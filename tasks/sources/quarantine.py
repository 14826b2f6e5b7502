"""Rows that cannot be used: what is wrong with each, where it stands, and how many there are."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TextIO

from include.glue import Task
from include.text import is_blank
from tasks.sources.base import Record

_SHOWN_TEXT = 200  # characters of a row that are kept for a person to look at
_EXAMPLES = 3  # places that an error message names


@dataclass(frozen=True)
class Intake:
    """What came of reading a split.

    Attributes:
        read: rows in the source.
        set_aside: those that went to the quarantine.
        examples: where the first of them stand and what is wrong: " (line 3: empty text; ...)"; "" where there is none.
    """

    read: int
    set_aside: int
    examples: str


class Quarantine:
    """The rows of a split that were set aside, one JSON object a line."""

    def __init__(self, stream: TextIO, split: str, file: str) -> None:
        self._stream, self._split, self._file = stream, split, file
        self._rows = 0
        self._examples: list[str] = []

    def add(self, record: Record, reason: str) -> None:
        """Set a row aside."""
        self._rows += 1
        if self._rows <= _EXAMPLES:
            self._examples.append(f"line {record.line}: {reason}")
        entry = {"split": self._split, "file": self._file, "line": record.line, "reason": reason}
        self._stream.write(json.dumps(entry | {"text": record.raw[:_SHOWN_TEXT]}, ensure_ascii=False) + "\n")

    def intake(self, read: int) -> Intake:
        """The count of it, given the number of rows read."""
        examples = "; ".join([*self._examples, *(["..."] if self._rows > _EXAMPLES else [])])
        return Intake(read, self._rows, f" ({examples})" if examples else "")


def problem(record: Record, task: Task, split: str) -> str:
    """Why the row cannot be used, "" when it can."""
    if record.problem:
        return record.problem
    if any(map(is_blank, record.sentences)):
        return "empty text"
    if split == "test":
        return _index_problem(record)
    return _score_problem(record.label, task) if task.kind == "regression" else _class_problem(record.label, task)


def _index_problem(record: Record) -> str:
    """Predictions are matched by position, so the index must count from 0 without gaps or repeats."""
    if record.index in ("", str(record.row)):
        return ""
    return f"index {record.index!r} where {record.row} is due"


def _class_problem(label: str, task: Task) -> str:
    return "" if label in task.labels else f"label {label[:20]!r} is not one of {', '.join(task.labels)}"


def _score_problem(label: str, task: Task) -> str:
    assert task.score_range is not None  # every regression has one
    low, high = task.score_range
    score = _number(label)
    if score is None:
        point = label.replace(",", ".")
        remedy = f": write {point.strip()[:20]}, with a decimal point" if _number(point) is not None else ""
        return f"score {label[:20]!r} is not a number{remedy}"
    if not math.isfinite(score) or not low <= score <= high:
        return f"score {label[:20]} is not between {low:g} and {high:g}"
    return ""


def _number(text: str) -> float | None:
    """The number that a person or a program has written; Python takes 1_0 and digits of other scripts for one, too."""
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None
