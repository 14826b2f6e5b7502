"""Drift windows of a stream: batches joined until they have enough rows to be compared with the training rows.

They depend on the tallies of the batches alone, so a restarted stream finds the same windows.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Self

from include.glue import Kind
from include.sections import Dataset
from tasks.scoring.drift import Figure, Profile, measure


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
    """Join consecutive batches to windows.

    A window ends with the batch with which it has `rows` rows, or before a batch of another version of the model. In
    the latter case, it has no figures: those of few rows exceed their limits by chance. The batches after the last
    window are not part of the result until more follow, and the batches of earlier windows can be left out.

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
    """Return the shares of the labels, or the mean and the standard deviation of the scores."""
    if profile.kind != "regression":
        return {"labels": {label: round(share, 4) for label, share in profile.shares.items()}}
    mean = sum(score * share for score, share in profile.shares.items())
    variance = sum((score - mean) ** 2 * share for score, share in profile.shares.items())
    return {"scores": {"mean": round(mean, 4), "standard_deviation": round(math.sqrt(variance), 4)}}
