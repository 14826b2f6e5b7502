"""The quarantine: rows that cannot be used, with their location and the reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from include.glue import GENERIC, Task
from include.text import is_blank
from tasks.sources.labels import listed, map_hint, number, spellings
from tasks.sources.source import Record
from tasks.sources.text_files import BROKEN, WINDOWS

_SHOWN_TEXT = 200  # characters of a row that the quarantine keeps
_EXAMPLES = 3  # rows that an error message names
_MOST = 1000  # different labels of quarantined rows that are counted


@dataclass
class Tally:
    """What is known of the rows of a split, or of a piece of it.

    Attributes:
        read: how many rows were read.
        rows: how many of them were quarantined.
        examples: the first ones with the reasons, and "..." if there are more.
        labels: how many have each of the first _MOST labels.
        undecodable: whether one is in another encoding than UTF-8.
    """

    read: int = 0
    rows: int = 0
    examples: list[str] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)
    undecodable: bool = False

    def append(self, other: Tally) -> None:
        """Add the rows that come next."""
        self.read += other.read
        self.rows += other.rows
        self.examples += other.examples
        if len(self.examples) > _EXAMPLES:
            self.examples[_EXAMPLES:] = ["..."]
        for label, rows in other.labels.items():
            if label in self.labels or len(self.labels) < _MOST:
                self.labels[label] += rows
        self.undecodable = self.undecodable or other.undecodable

    def summary(self, task: Task) -> QuarantineSummary:
        """Return the summary of the rows, which should have had labels of the task."""
        hints = [WINDOWS] if self.undecodable else []
        counts: Counter[str] = Counter()
        for cell, rows in self.labels.items():
            counts.update(dict.fromkeys(task.labels_in(cell), rows))
        unknown = {label: rows for label, rows in counts.items() if label not in (*task.labels, "")}
        if task.labels and (alike := spellings(unknown, task.labels)):
            found = listed({label: unknown[label] for label in alike})
            hints.append(f"if {found} are labels in another spelling, write {map_hint(alike)}")
        if task.name not in GENERIC and sum(unknown.values()) * 2 > self.read:
            hints.append(f"if {listed(unknown)} are the labels, write data.task: auto, and they are found")
        examples = f" ({'; '.join(self.examples)})" if self.examples else ""
        return QuarantineSummary(self.read, self.rows, examples, "".join(f"; {hint}" for hint in hints))


@dataclass(frozen=True)
class QuarantineSummary:
    """How many rows of a split were read, and how many of them were quarantined."""

    read: int
    set_aside: int
    examples: str  # the first of them with the reasons, as " (line 3: empty text; ...)", or ""
    hints: str = ""  # what may help many of them at once, each as "; if ..., write ..."


class Quarantine:
    """Write the unusable rows of a split to a stream, one JSON object per line."""

    def __init__(self, stream: TextIO, split: str, file: str) -> None:
        self._stream, self._split, self._file = stream, split, file
        self.tally = Tally()

    def usable(self, records: Iterable[Record], task: Task) -> Iterator[Record]:
        """Yield the records that can be used, and quarantine the others."""
        for record in records:
            self.tally.read += 1
            if reason := problem(record, task, self._split):
                self.add(record, reason)
            else:
                yield record

    def add(self, record: Record, reason: str) -> None:
        """Quarantine a row."""
        where = "" if record.file == self._file else f"{Path(record.file).name} "
        undecodable = reason.startswith(BROKEN) and "UTF-8" in reason
        example = f"{where}line {record.line}: {reason}"
        self.tally.append(Tally(0, 1, [example], Counter([record.label]), undecodable))
        entry = {"split": self._split, "file": record.file, "line": record.line, "reason": reason}
        self._stream.write(json.dumps(entry | {"text": record.raw[:_SHOWN_TEXT]}, ensure_ascii=False) + "\n")


def problem(record: Record, task: Task, split: str) -> str:
    """Return why a row cannot be used, or "" if it can. In test, the index is checked instead of the label."""
    if record.problem:
        return record.problem
    if any(map(is_blank, record.sentences)):
        return "empty text"
    if split == "test":  # predictions are matched by position, so the index must count from 0 without gaps
        return "" if record.index in ("", str(record.row)) else f"index {record.index!r}, expected {record.row}"
    if task.kind == "regression":
        return _score_problem(record.label, task)
    unknown = next((label for label in task.labels_in(record.label) if label not in task.labels), None)
    if unknown is None:
        return ""
    found = f"label {unknown[:20]!r} is not one of {', '.join(task.labels)}"
    if task.kind == "multilabel":
        found += f" (labels are separated by data.label_separator, {task.separator!r})"
    return found


def _score_problem(label: str, task: Task) -> str:
    assert task.score_range is not None  # every regression has one
    low, high = task.score_range
    score = number(label)
    if score is None:
        point = label.replace(",", ".")
        remedy = f": write {point.strip()[:20]}, with a decimal point" if number(point) is not None else ""
        return f"score {label[:20]!r} is not a number{remedy}"
    if not low <= score <= high:
        return f"score {label[:20]} is not between {low:g} and {high:g}"
    return ""
