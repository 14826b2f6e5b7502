"""Paired statistics in plain Python, for the reports of stages and for the panel, whose environment has no NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

#: The level of all confidence intervals.
LEVEL = 0.95
Interval = tuple[float, float]
_REACH = NormalDist().inv_cdf((1 + LEVEL) / 2)  # standard errors to each side


@dataclass(frozen=True)
class Difference:
    """A metric of one model minus that of another, its 95 % interval, and the two-sided p-value that they are equal."""

    value: float
    interval: Interval
    p: float


def of_answers(only_one: int, only_other: int, rows: int) -> Difference:
    """Compare the accuracies of two models by the numbers of rows that only one of them has right, and of all rows."""
    interval = bonett_price(only_one, only_other, rows)
    return Difference((only_one - only_other) / rows, interval, mcnemar(only_one, only_other))


def of_scores(labels: Sequence[float], one: Sequence[float], other: Sequence[float]) -> Difference | None:
    """Compare the Pearson correlations of two regressions with the labels, all [rows]; None if one is undefined.

    The standard error of the difference is that of the infinitesimal jackknife (Efron 1982), to which the bootstrap
    over the rows converges. It takes milliseconds, where a bootstrap in plain Python would take seconds.
    """
    first, second = _pearson(labels, one), _pearson(labels, other)
    if first is None or second is None:
        return None
    value = first[0] - second[0]
    error = math.dist(first[1], second[1]) / len(labels)
    p = math.erfc(abs(value) / error / math.sqrt(2)) if error else 1.0
    return Difference(value, (value - _REACH * error, value + _REACH * error), p)


def mcnemar(only_one: int, only_other: int) -> float:
    """Return the two-sided p-value of McNemar's exact test, from the numbers of rows that only one model has right."""
    apart = only_one + only_other
    ways, tail = 1, 0  # whole numbers, so that nothing is rounded
    for fewer in range(min(only_one, only_other) + 1):
        tail += ways
        ways = ways * (apart - fewer) // (fewer + 1)
    return min(2 * tail / (1 << apart), 1.0)


def bonett_price(only_one: int, only_other: int, rows: int) -> Interval:
    """Return the adjusted Wald interval of the difference of two paired proportions (Bonett & Price 2012)."""
    one, other, whole = (only_one + 1) / (rows + 2), (only_other + 1) / (rows + 2), rows + 2
    difference = one - other
    half = _REACH * math.sqrt((one + other - difference**2) / whole)
    return max(difference - half, -1.0), min(difference + half, 1.0)


def _pearson(labels: Sequence[float], scores: Sequence[float]) -> tuple[float, list[float]] | None:
    """Return Pearson's correlation and the influence of each row on it; None if it is undefined."""
    x, y = _standardized(labels), _standardized(scores)
    if not x or not y:
        return None
    r = sum(a * b for a, b in zip(x, y, strict=True)) / len(labels)
    return r, [a * b - r * (a * a + b * b) / 2 for a, b in zip(x, y, strict=True)]


def _standardized(values: Sequence[float]) -> list[float]:
    """Return the values with a mean of 0 and a standard deviation of 1; [] if they are all equal or not finite."""
    if not values or min(values) == max(values):
        return []
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) * (value - mean) for value in values) / len(values))
    return [(value - mean) / deviation for value in values] if math.isfinite(deviation) else []
