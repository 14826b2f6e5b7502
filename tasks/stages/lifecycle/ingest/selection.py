"""Select the new rows to add to a dataset, and measure their drift.

Known rows, duplicates, contradictions, and texts of dev or test are not added. Those of dev and test are found by
overlap_key, the others by text_key (tasks/sources/normalize.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from include.fields.retraining import Dataset
from include.glue import Task
from tasks.scoring import drift
from tasks.stages.lifecycle.ingest.version import Row, UsableRows

#: The possible outcomes for a new row.
OUTCOMES = ("added", "duplicate", "known", "conflict", "in_dev", "in_test")


def select(
    known: Mapping[str, Sequence[Row]], files: Iterable[UsableRows], task: Task
) -> tuple[list[Row], dict[str, int]]:
    """Return the new rows to add, in order, and the number of rows for each of OUTCOMES.

    A row that contradicts another one with the same text is quarantined: it is unknown which label is right.
    """
    files = list(files)
    split_of = {row.overlap: f"in_{split}" for split in ("test", "dev") for row in known[split]}
    labels, claims = _labels(known["train"], task), _labels((row for file in files for row in file.rows), task)
    added: dict[int, Row] = {}
    counts: Counter[str] = Counter()
    for file in files:
        for row, record in zip(file.rows, file.records, strict=True):
            fate = split_of.get(row.overlap) or _fate(_value(row, task), labels.get(row.key), claims[row.key])
            if fate == "conflict":
                others = (labels.get(row.key) or claims[row.key]) - {_value(row, task)}
                words = sorted(_words(each, task) for each in others)
                file.quarantine.add(record, f"conflict: the same text also has the label {', '.join(words)}")
            elif fate == "added" and added.setdefault(row.key, row) is not row:
                fate = "duplicate"
            counts[fate] += 1
    return list(added.values()), {fate: counts[fate] for fate in OUTCOMES}


def measure_drift(old: Sequence[Row], new: Sequence[Row], task: Task, limits: Dataset) -> list[drift.Figure]:
    """Compute the figures of the drift of new rows from the training rows of the last version; neither may be empty."""

    def profile(rows: Sequence[Row]) -> drift.Profile:
        return drift.Profile.of(task.kind, (row.sentences for row in rows), (_value(row, task) for row in rows))

    return drift.measure(profile(old), profile(new), limits)


def _fate(label: Any, known: set[Any] | None, claimed: set[Any]) -> str:
    if known is not None:
        return "known" if label in known else "conflict"
    return "added" if len(claimed) == 1 else "conflict"


def _labels(rows: Iterable[Row], task: Task) -> dict[int, set[Any]]:
    found: dict[int, set[Any]] = defaultdict(set)
    for row in rows:
        found[row.key].add(_value(row, task))
    return dict(found)


def _words(value: Any, task: Task) -> str:
    return task.separator.join(sorted(value)) if task.kind == "multilabel" else str(value)


def _value(row: Row, task: Task) -> Any:
    """Return a label (str), a score (float), or a set of labels: the same however the file writes it."""
    match task.kind:
        case "regression":
            return float(row.label)
        case "multilabel":
            return frozenset(task.labels_in(row.label))
        case "classification":
            return row.label
