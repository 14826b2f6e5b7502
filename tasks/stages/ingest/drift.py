"""Drift: three figures between 0 and 1 for the difference between new rows and the last version's training rows.

Total variation distance: Levin and Peres, Markov Chains and Mixing Times, proposition 4.2. Two-sample
Kolmogorov-Smirnov statistic: Massey 1951, JASA 46. For two samples of one distribution, one of 100 rows and the other
one much larger, the statistic exceeds 0.136 in 5 % of all cases.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from include.glue import Task
from include.sections import Dataset
from tasks.stages.ingest.rows import Row

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Figure:
    """One figure of drift.

    Attributes:
        name: What may have changed.
        measure: How the change is measured.
        value: The measured change, between 0 and 1.
        field: The experiment's field that sets the limit.
        limit: The largest accepted value.
    """

    name: str
    measure: str
    value: float
    field: str
    limit: float

    @property
    def reason(self) -> str:
        """Why the value is above the limit; "" if it is not."""
        if self.value <= self.limit:
            return ""
        return f"the drift of {self.name} is {self.value:.3f} ({self.measure}), above {self.field} = {self.limit:g}"

    def as_json(self) -> dict[str, object]:
        """Return the entry for drift.json."""
        return {**asdict(self), "value": round(self.value, 4), "passed": not self.reason}


def measure(old: Sequence[Row], new: Sequence[Row], task: Task, limits: Dataset) -> list[Figure]:
    """Compute all figures of drift.

    Args:
        old: The training rows of the last version; not empty.
        new: The new rows; not empty.
        task: The task.
        limits: The experiment's dataset section.
    """
    lengths = _distance(*([len(_words(row)) for row in rows] for rows in (old, new)))
    return [
        _label_drift(old, new, task, limits.max_label_drift),
        Figure("length", "Kolmogorov-Smirnov, in words", lengths, "dataset.max_length_drift",
               limits.max_length_drift),
        Figure("vocabulary", "share of unknown words", _unknown(old, new), "dataset.max_vocabulary_drift",
               limits.max_vocabulary_drift),
    ]  # fmt: skip


def _label_drift(old: Sequence[Row], new: Sequence[Row], task: Task, limit: float) -> Figure:
    name, field = "label balance", "dataset.max_label_drift"
    if task.kind == "regression":
        scores = ([float(row.label) for row in rows] for rows in (old, new))
        return Figure(name, "Kolmogorov-Smirnov, of scores", _distance(*scores), field, limit)
    if task.kind == "multilabel":
        before, now = (
            Counter(label for row in rows for label in set(task.labels_in(row.label))) for rows in (old, new)
        )
        shift = max(abs(before[label] / len(old) - now[label] / len(new)) for label in task.labels)
        return Figure(name, "largest change of a label's share of rows", shift, field, limit)
    before, now = (Counter(row.label for row in rows) for rows in (old, new))
    moved = sum(abs(before[label] / len(old) - now[label] / len(new)) for label in task.labels)
    return Figure(name, "total variation distance", moved / 2, field, limit)


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the Kolmogorov-Smirnov statistic: the largest distance of the two empirical distribution functions."""
    one, two = np.sort(first), np.sort(second)
    points = np.concatenate([one, two])
    return float(np.abs(_share_below(one, points) - _share_below(two, points)).max())


def _share_below(sample: npt.NDArray[np.float64], points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.searchsorted(sample, points, side="right") / len(sample)


def _unknown(old: Sequence[Row], new: Sequence[Row]) -> float:
    """Return the share of all words of the new rows that occur in no old row. Repeated words count repeatedly."""
    vocabulary = {word for row in old for word in _words(row)}
    words = [word for row in new for word in _words(row)]
    return sum(word not in vocabulary for word in words) / max(len(words), 1)


def _words(row: Row) -> list[str]:
    return [word for sentence in row.sentences for word in _WORD.findall(sentence.casefold())]
