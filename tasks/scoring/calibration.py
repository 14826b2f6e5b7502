"""Calibration: whether a model is right as often as its probabilities say, and the temperature that makes it so.

The probabilities of a calibrated model are those of its logits divided by one number, the temperature (Guo et al. 2017,
"On Calibration of Modern Neural Networks"). The order of the classes, and so the predicted class, does not depend on
it. Raw logits are those before this division.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from include.glue import Kind
from include.paired import Interval
from tasks.scoring.intervals import around_distance, resampled_rows, times_drawn
from tasks.scoring.predictions import Array, probabilities

BINS = 15  # as Guo et al.


def fit_temperature(kind: Kind, labels: Array, logits: Array) -> float:
    """Return the temperature with the lowest negative log likelihood of labeled rows; 1 for a regression.

    Given b = 1 / temperature, b - log(b) is added to the negative log likelihood of all rows. This is the likelihood of
    a prior (the gamma distribution with its mode at 1), which weighs about as much as one row. With it, the function is
    convex in b and infinite at 0 and at infinity, so there is exactly one best temperature, whatever the rows: all
    right, all wrong, or none.

    Args:
        kind: what the outputs mean. Those of several labels count as a binary classification each.
        labels: class ids, [n], or zeros and ones, [n, labels].
        logits: raw and finite, [n, outputs].
    """
    if kind == "regression":
        return 1.0
    logits = logits.astype(np.float64)
    if kind == "classification":
        logits -= logits.max(axis=1, keepdims=True)  # which changes nothing but the rounding of sums
    truth = labels if kind == "multilabel" else np.eye(logits.shape[1])[labels]

    def slope(inverse: float) -> float:
        """Return the derivative of the function with respect to b."""
        return float((logits * (probabilities(kind, logits * inverse) - truth)).sum()) + 1 - 1 / inverse

    low = high = 1.0
    while slope(low) > 0:
        low /= 2
    while slope(high) < 0:
        high *= 2
    return 1 / low if low == high else 1 / float(brentq(slope, low, high))


def reliability(kind: Kind, labels: Array, chances: Array) -> dict[str, Any]:
    """Return the expected calibration error (equation 3 in Guo et al.), its 95 % interval, and the bins with rows.

    A bin has the decisions whose confidence is in (low, high], their mean confidence and their accuracy. A decision is
    the class of a row, or whether a row has a label, which is at least one half probable. `labels` are class ids, [n],
    or zeros and ones, [n, labels], and `chances` the probabilities, [n, outputs].
    """
    confidence, right = _decisions(kind, labels, chances)
    edges = np.linspace(0, 1, BINS + 1)
    places = np.searchsorted(edges, confidence, side="left") - 1
    bins = []
    for place in np.unique(places):
        inside = places == place
        bounds = {"low": float(edges[place]), "high": float(edges[place + 1]), "rows": int(inside.sum())}
        means = {"confidence": float(confidence[inside].mean()), "accuracy": float(right[inside].mean())}
        bins.append(bounds | means)
    gaps = sum(one["rows"] * abs(one["accuracy"] - one["confidence"]) for one in bins)
    return {"ece": gaps / confidence.size, "interval": _interval(places, right - confidence), "bins": bins}


def _decisions(kind: Kind, labels: Array, chances: Array) -> tuple[Array, Array]:
    """Return the confidence of each decision, and whether it is right, both [n, decisions]."""
    if kind == "multilabel":
        return np.maximum(chances, 1 - chances), (chances >= 0.5) == labels
    return chances.max(axis=1, keepdims=True), chances.argmax(axis=1)[:, None] == labels[:, None]


def _interval(places: Array, gaps: Array) -> Interval:
    """Resample the rows, given the bin and the gap between right (1) or wrong (0) and confidence, [n, decisions]."""
    rows = len(gaps)
    cells = np.arange(rows)[:, None] * BINS + places
    by_bin = np.bincount(cells.ravel(), gaps.ravel() / gaps.size, rows * BINS).reshape(rows, BINS)
    draws = [times_drawn(at, rows) @ by_bin for at in resampled_rows(rows)]
    return around_distance(by_bin.sum(axis=0), np.concatenate(draws))
