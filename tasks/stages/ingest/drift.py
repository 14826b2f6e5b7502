"""How far new rows differ from the last version's training rows: three figures between 0 and 1.

Total variation distance: Levin and Peres, Markov Chains and Mixing Times, proposition 4.2. Kolmogorov-Smirnov
statistic of two samples: Massey 1951, JASA 46; two samples of one distribution, of which one has 100 rows and the
other many, differ by more than 0.136 in one case of twenty.
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
        name: what may have changed.
        measure: how that is measured.
        value: by how much it has.
        field: the experiment's field that limits it.
        limit: what that says.
    """

    name: str
    measure: str
    value: float
    field: str
    limit: float

    @property
    def reason(self) -> str:
        """Why it is too much; "" when it is not."""
        if self.value <= self.limit:
            return ""
        return f"the drift of {self.name} is {self.value:.3f} ({self.measure}), above {self.field} = {self.limit:g}"

    def as_json(self) -> dict[str, object]:
        """The same for drift.json."""
        return {**asdict(self), "value": round(self.value, 4), "passed": not self.reason}


def measure(old: Sequence[Row], new: Sequence[Row], task: Task, limits: Dataset) -> list[Figure]:
    """All figures; neither side may be empty."""
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
    before, now = (Counter(row.label for row in rows) for rows in (old, new))
    moved = sum(abs(before[label] / len(old) - now[label] / len(new)) for label in task.labels)
    return Figure(name, "total variation distance", moved / 2, field, limit)


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest distance of the two samples' distribution functions."""
    one, two = np.sort(first), np.sort(second)
    points = np.concatenate([one, two])
    return float(np.abs(_share_below(one, points) - _share_below(two, points)).max())


def _share_below(sample: npt.NDArray[np.float64], points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.searchsorted(sample, points, side="right") / len(sample)


def _unknown(old: Sequence[Row], new: Sequence[Row]) -> float:
    """The share of the new rows' words, repeats counted, that no old row holds."""
    vocabulary = {word for row in old for word in _words(row)}
    words = [word for row in new for word in _words(row)]
    return sum(word not in vocabulary for word in words) / max(len(words), 1)


def _words(row: Row) -> list[str]:
    return [word for sentence in row.sentences for word in _WORD.findall(sentence.casefold())]
