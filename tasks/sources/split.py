"""Split the rows of one file into train, dev and test."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from include.glue import Task
from tasks.sources.base import Record
from tasks.sources.normalize import overlap_key
from tasks.sources.quarantine import problem

RULE = "1"  # must be increased when a change moves rows to another split
_BINS = 10  # strata of scores


def split_rows(records: Iterable[Record], task: Task) -> list[str]:
    """Return the split of each row: a tenth of each stratum is dev, another tenth is test.

    The order of the hashes of the texts decides, so that equal texts are in the same split, and that the split depends
    neither on a seed nor on the order of the rows. A stratum is a class, a tenth of the scores or, if rows have several
    labels, the rows with the same rarest label. A stratum with three texts or more has some in each split. Rows that
    cannot be used are in train, where some of them are tolerated.

    Args:
        records: All rows of the file.
        task: The task, which says what a label is.
    """
    keys: list[int | None] = []
    labels: dict[int, str] = {}
    for record in records:
        key = None if problem(record, task, "train") else overlap_key(record.sentences)
        keys.append(key)
        if key is not None:
            labels.setdefault(key, record.label)
    part: dict[int, str] = {}
    for stratum in _strata(labels, task):
        some = max(1, round(len(stratum) / 10)) if len(stratum) > 2 else 0
        ordered = sorted(stratum)
        part |= dict.fromkeys(ordered[:some], "test") | dict.fromkeys(ordered[some : 2 * some], "dev")
    return ["train" if key is None else part.get(key, "train") for key in keys]


def _strata(labels: dict[int, str], task: Task) -> Iterator[list[int]]:
    if task.kind == "regression":
        ordered = sorted(labels, key=lambda key: (float(labels[key]), key))
        bins = min(_BINS, max(1, len(ordered) // 10))
        yield from (ordered[len(ordered) * at // bins : len(ordered) * (at + 1) // bins] for at in range(bins))
        return
    named = {key: task.labels_in(label) if task.kind == "multilabel" else [label] for key, label in labels.items()}
    rows = Counter(label for found in named.values() for label in found)
    strata: dict[str, list[int]] = defaultdict(list)
    for key, found in named.items():
        strata[min(found, key=lambda label: (rows[label], label), default="")].append(key)
    yield from strata.values()
