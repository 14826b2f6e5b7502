"""95 % confidence intervals of a metric, given a sample of rows such as the dev split.

Accuracy has Wilson's interval (Wilson 1927). The other metrics are bootstrapped (Efron 1979): the rows are drawn 2,000
times with replacement, with a fixed seed, and the interval reaches from the 2.5th to the 97.5th percentile. Where only
the number of rows of each kind matters, these numbers are drawn: scipy.stats.bootstrap, which draws rows, takes 4 times
as long for 872 rows and 200 times as long for 40,000.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.metrics import confusion_matrix

from include.glue import Task
from include.paired import LEVEL, Interval
from tasks.scoring.predictions import Array

RESAMPLES = 2000
_IN_MEMORY = 200_000  # resampled rows that are in memory at a time, for correlations

Floats = npt.NDArray[np.float64]


def interval(task: Task, metric: str, labels: Array, predicted: Array) -> Interval | None:
    """Return the interval of a metric (or of recall, if all rows have the same label), or None if it is undefined.

    Labels and predictions are class ids or scores, [n], or zeros and ones, [n, labels].
    """
    if not len(labels) or not np.isfinite(predicted).all():
        return None
    if metric in ("accuracy", "recall"):
        return of_share(int((labels == predicted).sum()), len(labels))
    return _middle(_resampled(task, metric, labels, predicted))


def over_seeds(values: Sequence[float]) -> Interval:
    """Return Student's t interval of the mean of at least two values, one per seed."""
    half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def of_share(right: int, rows: int) -> Interval | None:
    """Return Wilson's score interval of the proportion `right / rows`, or None if there are no rows."""
    if not rows:
        return None
    found = stats.binomtest(right, rows).proportion_ci(LEVEL, method="wilson")
    return float(found.low), float(found.high)


def of_class_f1(right: int, wrongly: int, missed: int, rows: int) -> Interval | None:
    """Return the interval of one class's F1, or None if the class neither occurs nor is predicted."""
    if not right + wrongly + missed:
        return None
    counts = np.array([right, wrongly, missed, rows - right - wrongly - missed])
    hits, *errors, _ = np.random.default_rng(0).multinomial(rows, counts / rows, size=RESAMPLES).T
    return _middle(_ratio(2 * hits, 2 * hits + sum(errors)))


def _middle(values: Floats) -> Interval | None:
    """Return the central range that holds LEVEL of the finite values."""
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _resampled(task: Task, metric: str, labels: Array, predicted: Array) -> Floats:
    if task.kind == "multilabel":
        draws = resampled_sets(labels, predicted)
        return np.concatenate([f1_of_sets(rows, truth, said, metric) for rows, (truth, said) in draws])
    if task.kind == "regression":
        return np.concatenate([correlations(labels[at], predicted[at], metric) for at in resampled_rows(len(labels))])
    matrix = confusion_matrix(labels, predicted, labels=range(task.outputs))
    cells = np.random.default_rng(0).multinomial(len(labels), matrix.ravel() / matrix.sum(), size=RESAMPLES)
    matrices = cells.reshape(-1, task.outputs, task.outputs).astype(np.float64)
    return matthews_of(matrices) if metric == "matthews" else f1_of(matrices)


def around_distance(gaps: Floats, resampled: Floats) -> Interval:
    """Return the interval of the sum of absolute gaps, [gaps], given the gaps of each draw, [draws, gaps].

    Chance makes such a sum larger, that of a draw twice, so the percentiles of the draws would lie above the truth.
    They are therefore mirrored at the sum (the basic bootstrap interval in Davison and Hinkley 1997, section 5.2), and
    the interval begins at 0 if the draws differ from the gaps by as much as the gaps do from 0.
    """
    found, tail = float(np.abs(gaps).sum()), 100 * (1 - LEVEL) / 2
    lowest, highest = np.percentile(np.abs(resampled).sum(axis=1), [tail, 100 - tail])
    chance = np.percentile(np.abs(resampled - gaps).sum(axis=1), 100 - tail)
    low = 0.0 if found <= chance else max(0.0, 2 * found - float(highest))
    return low, max(found, 2 * found - float(lowest))


def resampled_rows(rows: int) -> Iterator[Array]:
    """Yield the positions of the rows of the RESAMPLES draws in parts, [draws, rows] each."""
    random, at_once = np.random.default_rng(0), max(_IN_MEMORY // rows, 1)
    for start in range(0, RESAMPLES, at_once):
        yield random.integers(rows, size=(min(at_once, RESAMPLES - start), rows))


def times_drawn(at: Array, rows: int) -> Floats:
    """Return how often each of the rows is in each draw, [draws, rows], given the positions of those drawn."""
    cells = at + rows * np.arange(len(at))[:, None]
    return np.bincount(cells.ravel(), minlength=len(at) * rows).reshape(len(at), rows).astype(np.float64)


def metric_of_rows(task: Task, metric: str, labels: Array, predicted: Array, rows: Array) -> Floats:
    """Return a metric of each draw, [draws], of rows at these positions, [draws, rows]; see `interval`."""
    if task.kind == "regression":
        return correlations(labels[rows], predicted[rows], metric)
    times = times_drawn(rows, len(labels))
    if task.kind == "multilabel":
        return f1_of_sets(times, labels, predicted, metric)
    cells = np.eye(task.outputs**2)[labels * task.outputs + predicted]
    matrices = (times @ cells).reshape(-1, task.outputs, task.outputs)
    if metric == "accuracy":
        accuracy: Floats = np.trace(matrices, axis1=1, axis2=2) / matrices.sum(axis=(1, 2))
        return accuracy
    return matthews_of(matrices) if metric == "matthews" else f1_of(matrices)


def resampled_sets(labels: Array, *predicted: Array) -> Iterator[tuple[Floats, list[Array]]]:
    """Resample the rows of a multi-label task, [n, labels], as cells of a table of all that occurs in a row.

    Yield for each part of the RESAMPLES draws the numbers of rows, [draws, cells], and of each cell the labels and the
    predictions of each model, [cells, labels] each.
    """
    random, rows = np.random.default_rng(0), len(labels)
    cells, counts = np.unique(np.hstack([labels, *predicted]), axis=0, return_counts=True)
    sides: list[Array] = np.split(cells, 1 + len(predicted), axis=1)
    at_once = max(_IN_MEMORY // len(cells), 1)
    for start in range(0, RESAMPLES, at_once):
        draws = random.multinomial(rows, counts / rows, size=min(at_once, RESAMPLES - start))
        yield draws.astype(np.float64), sides


def f1_of_sets(rows: Floats, labels: Array, predicted: Array, metric: str) -> Floats:
    """Return f1_micro or f1_macro of each draw, [draws], from what `resampled_sets` yields."""
    right, seen = rows @ (labels * predicted), rows @ (labels + predicted)
    if metric == "f1_micro":
        right, seen = right.sum(axis=1, keepdims=True), seen.sum(axis=1, keepdims=True)
    mean: Floats = _ratio(2 * right, seen).mean(axis=1)
    return mean


def correlations(labels: Array, scores: Array, metric: str) -> Floats:
    """Return the pearson or spearman correlation of each draw of [draws, n]; NaN where one side is constant."""
    if metric == "spearman":
        labels, scores = stats.rankdata(labels, axis=1), stats.rankdata(scores, axis=1)
    constant = (np.ptp(labels, axis=1) == 0) | (np.ptp(scores, axis=1) == 0)
    labels, scores = (side - side.mean(axis=1, keepdims=True) for side in (labels, scores))
    spread = np.sqrt((labels**2).sum(axis=1) * (scores**2).sum(axis=1))
    found: Floats = np.divide((labels * scores).sum(axis=1), spread, out=np.full(len(labels), np.nan), where=~constant)
    return found


def f1_of(matrices: Floats) -> Floats:
    """Return F1, as metrics.py defines it, of each confusion matrix [draws, classes (label), classes (prediction)]."""
    right = np.diagonal(matrices, axis1=1, axis2=2)
    seen = matrices.sum(axis=1) + matrices.sum(axis=2)
    each = _ratio(2 * right, seen)
    if each.shape[1] == 2:
        return each[:, 1]
    mean: Floats = each.sum(axis=1) / (seen > 0).sum(axis=1)  # leaves out classes that neither occur nor are predicted
    return mean


def matthews_of(matrices: Floats) -> Floats:
    """Return the Matthews correlation (Gorodkin 2004, equation 8) of each confusion matrix; 0 where it is undefined."""
    rows = matrices.sum(axis=(1, 2))
    right = np.trace(matrices, axis1=1, axis2=2)
    labeled, predicted = matrices.sum(axis=2), matrices.sum(axis=1)
    covariance = right * rows - (labeled * predicted).sum(axis=1)
    spread = (rows**2 - (labeled**2).sum(axis=1)) * (rows**2 - (predicted**2).sum(axis=1))
    return _ratio(covariance, np.sqrt(spread))


def _ratio(part: Array, whole: Array) -> Floats:
    found: Floats = np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)
    return found
