"""Windows of a stream: consecutive batches, joined until they have enough rows to be compared with the training rows.

They are computed from the tallies of the batches alone, so a stream that is started again finds the same windows.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

from include.sections import Dataset
from tasks.scoring.drift import Figure, Profile, measure


@dataclass(frozen=True)
class Tally:
    """What a batch has counted. It is kept as JSON beside the rows of the batch.

    Attributes:
        batch: The number of the batch. A later batch has a higher number.
        model_version: The version of the model that labeled its rows.
        profile: The counts of its rows, whose labels are the answers of the model. Their texts are cleaned as those in
            the training of the model, whose profile they are compared with.
        confidence: The sum of the largest probabilities of all rows; None for a regression.
    """

    batch: int
    model_version: str
    profile: Profile
    confidence: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the tally as JSON values."""
        return {**vars(self), "profile": self.profile.as_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the tally that `as_json` has written."""
        return cls(**{**value, "profile": Profile.from_json(value["profile"])})


@dataclass(frozen=True)
class Window:
    """Consecutive batches that one version of the model has labeled.

    Attributes:
        first: The number of the first batch.
        last: The number of the last batch.
        model_version: The version of the model.
        profile: The counts of all rows.
        confidence: The mean over all rows of the largest probability; None for a regression.
        figures: The drift from the training rows of the model. It is empty if they are not known, or if the window has
            too few rows for a verdict because the model was changed.
    """

    first: int
    last: int
    model_version: str
    profile: Profile
    confidence: float | None
    figures: list[Figure]

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
        return {
            "first": self.first,
            "last": self.last,
            "model_version": self.model_version,
            "rows": self.profile.rows,
            **_answers(self.profile),
            "confidence": None if self.confidence is None else round(self.confidence, 4),
            "figures": [figure.as_json() for figure in self.figures],
            "passed": self.passed,
            "reasons": self.reasons,
        }


def windows(tallies: Iterable[Tally], rows: int, references: Mapping[str, Profile], limits: Dataset) -> list[Window]:
    """Join batches to windows.

    A window ends with the batch with which it has enough rows, or before a batch of another version of the model,
    because its rows are compared with other training rows. In the latter case, it has no figures: those of few rows
    exceed their limits by chance. The batches after the last window are not part of the result until more follow.

    Further batches do not change the windows of earlier ones. The batches up to the end of any window can be left out;
    the other windows remain the same.

    Args:
        tallies: The tallies of consecutive batches. Batches without rows are ignored.
        rows: The number of rows that a window needs for a verdict.
        references: Version of the model to the profile of its training rows, where it is known.
        limits: The experiment's dataset section.
    """
    found = []
    for group in _groups(sorted(tallies, key=lambda tally: tally.batch), rows):
        profile = reduce(operator.add, (tally.profile for tally in group))
        reference = references.get(group[0].model_version) if profile.rows >= rows else None
        figures = [] if reference is None else measure(reference, profile, limits)
        found.append(_window(group, profile, figures))
    return found


def _groups(tallies: Iterable[Tally], rows: int) -> Iterator[list[Tally]]:
    """Yield the batches of each window."""
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


def _window(group: Sequence[Tally], profile: Profile, figures: list[Figure]) -> Window:
    sums = [tally.confidence for tally in group if tally.confidence is not None]
    confidence = sum(sums) / profile.rows if sums else None
    return Window(group[0].batch, group[-1].batch, group[0].model_version, profile, confidence, figures)


def _answers(profile: Profile) -> dict[str, Any]:
    """Return the shares of the labels, or the mean and the standard deviation of the scores."""
    if profile.kind != "regression":
        return {"labels": {label: round(share, 4) for label, share in profile.shares.items()}}
    mean = sum(score * share for score, share in profile.shares.items())
    variance = sum((score - mean) ** 2 * share for score, share in profile.shares.items())
    return {"scores": {"mean": round(mean, 4), "standard_deviation": round(math.sqrt(variance), 4)}}
