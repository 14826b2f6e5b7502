"""Calibration of a classifier: whether, for example, 90 % of the rows with a confidence of 0.9 are right."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tasks.scoring.scored import ScoredSplit

BINS = 15  # as Guo et al. (2017)


@dataclass(frozen=True)
class Bin:
    """The rows whose confidence is in the interval (low, high].

    Attributes:
        low: The lower bound, exclusive.
        high: The upper bound, inclusive.
        rows: The number of rows.
        confidence: Their mean confidence.
        accuracy: Their accuracy.
    """

    low: float
    high: float
    rows: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """The expected calibration error, and the reliability bins that contain rows."""

    ece: float
    bins: list[Bin]

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as JSON."""
        return asdict(self)


def calibrate(scored: ScoredSplit) -> Calibration:
    """Compute the expected calibration error with bins of equal width.

    The error is the mean over all rows of |accuracy - confidence| of the row's bin (equation 3 in Guo et al. 2017, On
    Calibration of Modern Neural Networks).
    """
    edges = np.linspace(0, 1, BINS + 1)
    places = np.searchsorted(edges, scored.confidence, side="left") - 1
    right = scored.labels == scored.predicted
    bins = []
    for place in np.unique(places):
        inside = places == place
        mean, accuracy = float(scored.confidence[inside].mean()), float(right[inside].mean())
        bins.append(Bin(float(edges[place]), float(edges[place + 1]), int(inside.sum()), mean, accuracy))
    return Calibration(sum(one.rows * abs(one.accuracy - one.confidence) for one in bins) / len(scored), bins)
