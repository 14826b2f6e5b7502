"""Drift: figures between 0 and 1 for how new rows differ from the training rows, also of windows of a stream.

They are computed from exact counts, so rows can be counted in parts, and the training rows need not be at hand. Total
variation distance: Levin and Peres, Markov Chains and Mixing Times, proposition 4.2. Two-sample Kolmogorov-Smirnov
statistic: Massey 1951, JASA 46. For two samples of one distribution, one of 100 rows and the other one much larger, it
exceeds 0.136 in 5 % of all cases.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from include.fields.retraining import Dataset
from include.glue import Kind
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
        """Count rows of one text or two, whose label is a name, several names (multilabel), or a score (regression)."""
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


@dataclass(frozen=True)
class Tally:
    """What is counted in rows of a batch. It is kept as JSON next to the rows. Tallies of parts add up."""

    batch: int
    model_version: str
    profile: Profile  # of the labeled rows, with the answers as labels, and the texts cleaned as in training
    confidence: float | None = None  # the sum of their largest probabilities; None for a regression
    reasons: Counter[str] = field(default_factory=Counter)  # of the rows that were set aside

    @classmethod
    def nothing(cls, batch: int, model_version: str, kind: Kind, reasons: Iterable[str] = ()) -> Self:
        """Return the tally of no labeled rows, and of others that are set aside for these reasons."""
        confidence = None if kind == "regression" else 0.0
        return cls(batch, model_version, Profile.of(kind, [], []), confidence, Counter(reasons))

    def __add__(self, later: Tally) -> Tally:
        confidence = None if self.confidence is None or later.confidence is None else self.confidence + later.confidence
        profile, reasons = self.profile + later.profile, self.reasons + later.reasons
        return Tally(later.batch, later.model_version, profile, confidence, reasons)

    def as_json(self) -> dict[str, Any]:
        """Return the tally as JSON values."""
        return {**vars(self), "profile": self.profile.as_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the tally that `as_json` has written."""
        profile, reasons = Profile.from_json(value["profile"]), Counter(value.get("reasons", {}))
        return cls(**{**value, "profile": profile, "reasons": reasons})


@dataclass(frozen=True)
class DriftWindow:
    """Consecutive batches that one version of the model has labeled, from the first one to that of the tally."""

    first: int
    tally: Tally
    figures: list[Figure]  # none if the training rows are not known, or if a change of the model has left too few rows

    @property
    def reasons(self) -> list[str]:
        """Why figures are above their limits; empty if none is."""
        return [figure.reason for figure in self.figures if figure.reason]

    @property
    def passed(self) -> bool | None:
        """Whether all figures are within their limits; None if there are none."""
        return not self.reasons if self.figures else None

    def as_json(self) -> dict[str, Any]:
        """Return the window as JSON values: shares of labels, or mean and standard deviation of scores, not counts."""
        profile, confidence = self.tally.profile, self.tally.confidence
        return {
            "first": self.first,
            "last": self.tally.batch,
            "model_version": self.tally.model_version,
            "rows": profile.rows,
            **_answers(profile),
            "confidence": None if confidence is None else round(confidence / profile.rows, 4),
            "figures": [figure.as_json() for figure in self.figures],
            "passed": self.passed,
            "reasons": self.reasons,
        }


def drift_windows(
    tallies: Iterable[Tally], rows: int, references: Mapping[str, Profile], limits: Dataset
) -> list[DriftWindow]:
    """Join consecutive batches to windows, which are the same if a stream is started again.

    A window ends with the batch with which it has `rows` rows, or before a batch of another version: then it has no
    figures, since those of few rows exceed their limits by chance. The batches after the last window are left out.
    `references` maps a version of the model to the profile of its training rows, where it is known.
    """
    found = []
    for group in _groups(sorted(tallies, key=lambda tally: tally.batch), rows):
        whole = reduce(operator.add, group)
        reference = references.get(whole.model_version) if whole.profile.rows >= rows else None
        figures = [] if reference is None else measure(reference, whole.profile, limits)
        found.append(DriftWindow(group[0].batch, whole, figures))
    return found


def _groups(tallies: Iterable[Tally], rows: int) -> Iterator[list[Tally]]:
    group: list[Tally] = []
    for tally in tallies:
        if not tally.profile.rows:
            continue
        if group and group[-1].model_version != tally.model_version:
            yield group
            group = []
        group.append(tally)
        if sum(each.profile.rows for each in group) >= rows:
            yield group
            group = []


def _answers(profile: Profile) -> dict[str, Any]:
    if profile.kind != "regression":
        return {"labels": {label: round(share, 4) for label, share in profile.shares.items()}}
    mean = sum(score * share for score, share in profile.shares.items())
    variance = sum((score - mean) ** 2 * share for score, share in profile.shares.items())
    return {"scores": {"mean": round(mean, 4), "standard_deviation": round(math.sqrt(variance), 4)}}
