"""Which of the new rows a dataset gains: known ones, repeats, contradictions and dev's or test's stay out.

Texts are compared by text_key (tasks/sources/normalise.py), so case, punctuation and white space do not matter.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from include.glue import Task
from include.stages import BadInput
from tasks.sources import Record, Source
from tasks.sources.normalise import text_key
from tasks.sources.quarantine import Quarantine, problem

#: What becomes of a new row.
FATES = ("added", "duplicate", "known", "conflict", "in_dev", "in_test")


@dataclass(frozen=True, slots=True)
class Row:
    """A row that can be used: its texts, its label as written ("" in test), and what is the same in equal texts."""

    sentences: tuple[str, ...]
    label: str
    key: int


@dataclass(frozen=True)
class Found:
    """The usable rows of a split or file, and where each stands."""

    rows: list[Row]
    records: list[Record]
    read: int
    quarantine: Quarantine


def read(source: Source, split: str, task: Task, share: float, quarantine: Quarantine) -> Found:
    """The rows that can be used. Raises BadInput when more than the share of them cannot."""
    rows, records, count = [], [], 0
    for record in source.records(split):
        count += 1
        reason = problem(record, task, split)
        if reason:
            quarantine.add(record, reason)
        else:
            rows.append(Row(record.sentences, record.label, text_key(record.sentences)))
            records.append(record)
    intake = quarantine.intake(count)
    if intake.set_aside > math.floor(share * count):
        raise BadInput(
            f"{source.file(split)}: {intake.set_aside:,} of {count:,} rows cannot be used{intake.examples}; nothing "
            f"was taken: mend them (validation.max_quarantine allows {share:g} of a file's rows, and none of test's)"
        )
    return Found(rows, records, count, quarantine)


def select(known: Mapping[str, Sequence[Row]], files: Iterable[Found], task: Task) -> tuple[list[Row], dict[str, int]]:
    """The new rows to add, in order, and the number of rows of each fate.

    A text whose label contradicts a known row's, or another new row's, goes to the quarantine: who is right is not
    known. Of a text's equal new rows the first is added.
    """
    files = list(files)
    split_of = {row.key: f"in_{split}" for split in ("test", "dev") for row in known[split]}
    labels, claims = _labels(known["train"], task), _labels((row for file in files for row in file.rows), task)
    added: dict[int, Row] = {}
    counts: Counter[str] = Counter()
    for file in files:
        for row, record in zip(file.rows, file.records, strict=True):
            fate = split_of.get(row.key) or _fate(_value(row, task), labels.get(row.key), claims[row.key])
            if fate == "conflict":
                others = sorted(map(str, (labels.get(row.key) or claims[row.key]) - {_value(row, task)}))
                file.quarantine.add(record, f"conflict: the same text stands there with the label {', '.join(others)}")
            elif fate == "added" and added.setdefault(row.key, row) is not row:
                fate = "duplicate"
            counts[fate] += 1
    return list(added.values()), {fate: counts[fate] for fate in FATES}


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
    return float(row.label) if task.kind == "regression" else row.label
