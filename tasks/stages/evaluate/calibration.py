"""Calibration of a classifier: whether rows predicted with 90 % confidence are right nine times in ten."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tasks.scoring.scored import Scored

BINS = 15  # as Guo et al. (2017)


@dataclass(frozen=True)
class Bin:
    """The rows whose confidence lies above low and up to high: how many, their mean confidence and accuracy."""

    low: float
    high: float
    rows: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """Reliability bins that hold rows, and the expected calibration error over them."""

    ece: float
    bins: list[Bin]

    def as_json(self) -> dict[str, Any]:
        """The same for a JSON file."""
        return asdict(self)


def calibrate(scored: Scored) -> Calibration:
    """Expected calibration error with equal-width bins (Guo et al. 2017, On Calibration of Modern Neural Networks).

    ECE is the mean over rows of |accuracy - confidence| of the row's bin (their equation 3).
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
