"""Drift: three figures between 0 and 1 for the difference between new rows and the training rows.

They are computed from counts, so rows can be counted in parts, and the training rows need not be at hand.

Total variation distance: Levin and Peres, Markov Chains and Mixing Times, proposition 4.2. Two-sample
Kolmogorov-Smirnov statistic: Massey 1951, JASA 46. For two samples of one distribution, one of 100 rows and the other
one much larger, the statistic exceeds 0.136 in 5 % of all cases.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from include.glue import Kind
from include.sections import Dataset
from include.stages import BadInput

#: The file of a package that contains the profile of the training rows.
PROFILE = "profile.json"
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Profile:
    """The counts of rows. The profiles of parts add up to that of the whole."""

    kind: Kind
    labels: Counter[Any]  # label to the number of rows that have it; for a regression, score, which is not rounded
    lengths: Counter[int]  # in words, for pairs that of both texts together
    words: Counter[str]  # without regard to case

    @classmethod
    def of(
        cls,
        kind: Kind,
        texts: Iterable[Sequence[str]],
        labels: Iterable[str] | Iterable[Collection[str]] | Iterable[float],
    ) -> Self:
        """Count rows of one text or two. A label is a name, several names (multilabel), or a score (regression).

        Two profiles can be compared only if their texts were cleaned by the same rules.
        """
        lengths: Counter[int] = Counter()
        words: Counter[str] = Counter()
        for sentences in texts:
            found = [word for sentence in sentences for word in _WORD.findall(sentence.casefold())]
            lengths[len(found)] += 1
            words.update(found)
        counted: Iterable[Any] = labels
        if kind == "multilabel":
            counted = (label for several in counted for label in set(several))
        return cls(kind, Counter(counted), lengths, words)

    def __add__(self, other: Profile) -> Profile:
        return Profile(self.kind, self.labels + other.labels, self.lengths + other.lengths, self.words + other.words)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.lengths.total()

    @property
    def shares(self) -> dict[Any, float]:
        """Label to the share of the rows that have it, in the order of the labels."""
        return {label: self.labels[label] / self.rows for label in sorted(self.labels)}

    def as_json(self) -> dict[str, Any]:
        """Return the profile as JSON values, which do not depend on the order of the rows."""
        counts = {"labels": self.labels, "lengths": self.lengths, "words": self.words}
        ordered = {name: {str(key): each[key] for key in sorted(each)} for name, each in counts.items()}
        return {"kind": self.kind, "rows": self.rows, **ordered}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the profile that `as_json` has written."""
        labels = _counter(float if value["kind"] == "regression" else str, value["labels"])
        return cls(value["kind"], labels, _counter(int, value["lengths"]), _counter(str, value["words"]))


@dataclass(frozen=True)
class Figure:
    """One figure of drift, and the experiment's field with the largest accepted value."""

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
        """Return the figure as JSON values."""
        return {**asdict(self), "value": round(self.value, 4), "passed": not self.reason}


def read_profile(package: Path) -> Profile | None:
    """Return the profile of the training rows of a packaged model; None for a package of an earlier version."""
    file = package / PROFILE
    try:
        return Profile.from_json(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{file} is damaged ({error!r}): package the model again") from error


def measure(old: Profile, new: Profile, limits: Dataset) -> list[Figure]:
    """Compute all figures of drift of new rows from the training rows; neither is empty."""
    # Repeated words count repeatedly.
    unknown = sum(count for word, count in new.words.items() if word not in old.words)
    return [
        _label_drift(old, new, limits.max_label_drift),
        Figure("length", "Kolmogorov-Smirnov, in words", _distance(old.lengths, new.lengths),
               "dataset.max_length_drift", limits.max_length_drift),
        Figure("vocabulary", "share of unknown words", unknown / max(new.words.total(), 1),
               "dataset.max_vocabulary_drift", limits.max_vocabulary_drift),
    ]  # fmt: skip


def _label_drift(old: Profile, new: Profile, limit: float) -> Figure:
    name, field = "label balance", "dataset.max_label_drift"
    if old.kind == "regression":
        return Figure(name, "Kolmogorov-Smirnov, of scores", _distance(old.labels, new.labels), field, limit)
    before, now = old.shares, new.shares
    changes = [abs(before.get(label, 0) - now.get(label, 0)) for label in sorted({*before, *now})]
    if old.kind == "multilabel":
        return Figure(name, "largest change of a label's share of rows", max(changes, default=0.0), field, limit)
    return Figure(name, "total variation distance", sum(changes) / 2, field, limit)


def _distance(one: Counter[Any], other: Counter[Any]) -> float:
    """Return the Kolmogorov-Smirnov statistic: the largest distance of the two empirical distribution functions."""
    values = sorted({*one, *other})
    return max(abs(a - b) for a, b in zip(_distribution(one, values), _distribution(other, values), strict=True))


def _distribution(counts: Counter[Any], values: Sequence[Any]) -> list[float]:
    total = counts.total()
    return [rows / total for rows in accumulate(counts[value] for value in values)]


def _counter(kind: Callable[[str], Any], counts: Mapping[str, int]) -> Counter[Any]:
    return Counter({kind(key): count for key, count in counts.items()})
