"""Select the new rows to add to a dataset: no known rows, duplicates, contradictions, or texts of dev or test.

Those of dev and test are found by overlap_key, the others by text_key (tasks/sources/normalize.py).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from include.glue import Task
from include.stages import BadInput
from tasks.sources import Record, Source
from tasks.sources.normalize import overlap_key, text_key
from tasks.sources.quarantine import Quarantine, problem

#: The possible outcomes for a new row.
OUTCOMES = ("added", "duplicate", "known", "conflict", "in_dev", "in_test")


@dataclass(frozen=True, slots=True)
class Row:
    """A usable row.

    Attributes:
        sentences: The texts.
        label: The label as written in the source; "" in test.
        key: The text_key.
        overlap: The overlap_key.
    """

    sentences: tuple[str, ...]
    label: str
    key: int
    overlap: int


@dataclass(frozen=True)
class UsableRows:
    """The usable rows of a split or file.

    Attributes:
        rows: The usable rows.
        records: The records of these rows, with their locations in the file.
        read: The number of all rows, including unusable ones.
        quarantine: The quarantine of the split or file.
    """

    rows: list[Row]
    records: list[Record]
    read: int
    quarantine: Quarantine


def read(source: Source, split: str, task: Task, share: float, quarantine: Quarantine) -> UsableRows:
    """Read the usable rows of a split.

    Args:
        source: The source of the split.
        split: train, dev or test.
        task: The task, which decides whether a row is usable.
        share: The largest accepted share of unusable rows, between 0 and 1.
        quarantine: Receives the unusable rows.

    Raises:
        BadInput: If the share of unusable rows is larger.
    """
    rows, records, count = [], [], 0
    for record in source.records(split):
        count += 1
        reason = problem(record, task, split)
        if reason:
            quarantine.add(record, reason)
        else:
            rows.append(Row(record.sentences, record.label, text_key(record.sentences), overlap_key(record.sentences)))
            records.append(record)
    summary = quarantine.summary(count, task)
    if summary.set_aside > math.floor(share * count):
        raise BadInput(
            f"{source.file(split)}: {summary.set_aside:,} of {count:,} rows cannot be used{summary.examples}; nothing "
            f"was ingested: correct them (validation.max_quarantine allows a share of {share:g}, and 0 in test)"
            f"{summary.hints}"
        )
    return UsableRows(rows, records, count, quarantine)


def select(
    known: Mapping[str, Sequence[Row]], files: Iterable[UsableRows], task: Task
) -> tuple[list[Row], dict[str, int]]:
    """Select the new rows to add.

    A row whose label contradicts that of a known row or of another new row with the same text is quarantined, because
    it is unknown which label is right. Of equal new rows, only the first one is added.

    Args:
        known: Split to the rows of the dataset.
        files: The new rows.
        task: The task.

    Returns:
        The rows to add, in order, and the number of rows for each of OUTCOMES.
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
                others = sorted(map(str, (labels.get(row.key) or claims[row.key]) - {_value(row, task)}))
                file.quarantine.add(record, f"conflict: the same text also has the label {', '.join(others)}")
            elif fate == "added" and added.setdefault(row.key, row) is not row:
                fate = "duplicate"
            counts[fate] += 1
    return list(added.values()), {fate: counts[fate] for fate in OUTCOMES}


def _fate(label: str | float, known: set[str | float] | None, claimed: set[str | float]) -> str:
    if known is not None:
        return "known" if label in known else "conflict"
    return "added" if len(claimed) == 1 else "conflict"


def _labels(rows: Iterable[Row], task: Task) -> dict[int, set[str | float]]:
    found: dict[int, set[str | float]] = defaultdict(set)
    for row in rows:
        found[row.key].add(_value(row, task))
    return dict(found)


def _value(row: Row, task: Task) -> str | float:
    """Return the value of a label, which is the same however the file writes it."""
    match task.kind:
        case "regression":
            return float(row.label)
        case "multilabel":
            return task.separator.join(sorted(set(task.labels_in(row.label))))
        case "classification":
            return row.label
