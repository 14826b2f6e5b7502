"""95 % confidence intervals of a metric, given a sample of rows such as the dev split.

Accuracy is a proportion and has Wilson's interval (Wilson 1927). The other metrics are bootstrapped (Efron 1979): the
rows are drawn 2,000 times with replacement, with a fixed seed, and the interval reaches from the 2.5th to the 97.5th
percentile of the metric over these draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.metrics import confusion_matrix

from include.glue import Task
from include.paired import LEVEL, Interval
from tasks.scoring.metrics import Array

RESAMPLES = 2000
_IN_MEMORY = 200_000  # resampled rows that are in memory at a time, for correlations

Floats = npt.NDArray[np.float64]


def interval(task: Task, metric: str, labels: Array, predicted: Array) -> Interval | None:
    """Return the interval of a metric.

    Args:
        task: The task.
        metric: accuracy, f1, matthews, f1_micro, f1_macro, pearson, spearman, or, if all rows have the same label, its
            recall.
        labels: Class ids or scores, [n], or zeros and ones, [n, labels].
        predicted: Predicted class ids or scores, [n], or zeros and ones, [n, labels].

    Returns:
        The lower and the upper bound, or None if the metric is undefined.
    """
    if not len(labels) or not np.isfinite(predicted).all():
        return None
    if metric in ("accuracy", "recall"):
        return wilson(int((labels == predicted).sum()), len(labels))
    return _middle(_resampled(task, metric, labels, predicted))


def over_seeds(values: Sequence[float]) -> Interval:
    """Return Student's t interval of the mean of at least two values, one per seed."""
    half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def of_share(right: int, rows: int) -> Interval | None:
    """Return Wilson's interval of the proportion `right / rows`, or None if there are no rows."""
    return wilson(right, rows) if rows else None


def of_class_f1(right: int, wrongly: int, missed: int, rows: int) -> Interval | None:
    """Return the bootstrap interval of one class's F1.

    Args:
        right: The number of true positives.
        wrongly: The number of false positives.
        missed: The number of false negatives.
        rows: The number of rows of all classes.

    Returns:
        The lower and the upper bound, or None if the class neither occurs nor is predicted.
    """
    if not right + wrongly + missed:
        return None
    counts = np.array([right, wrongly, missed, rows - right - wrongly - missed])
    hits, *errors, _ = np.random.default_rng(0).multinomial(rows, counts / rows, size=RESAMPLES).T
    seen = 2 * hits + sum(errors)
    return _middle(np.divide(2 * hits, seen, out=np.zeros(RESAMPLES), where=seen > 0))


def wilson(right: int, rows: int) -> Interval:
    """Return Wilson's score interval of the proportion `right / rows`."""
    found = stats.binomtest(right, rows).proportion_ci(LEVEL, method="wilson")
    return float(found.low), float(found.high)


def _middle(values: Floats) -> Interval | None:
    """Return the central range that holds LEVEL of the finite values."""
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _resampled(task: Task, metric: str, labels: Array, predicted: Array) -> Floats:
    """Return the metric of each resample, [RESAMPLES]."""
    random = np.random.default_rng(0)
    if task.kind == "multilabel":
        return np.concatenate(
            [f1_of_sets(rows, truth, said, metric) for rows, (truth, said) in resampled_sets(labels, predicted)]
        )
    if metric in ("f1", "matthews"):
        # Drawing rows is equivalent to drawing cells of the confusion matrix, whose cost does not depend on the rows.
        matrix = confusion_matrix(labels, predicted, labels=range(task.outputs))
        draws = random.multinomial(len(labels), matrix.ravel() / matrix.sum(), size=RESAMPLES)
        matrices = draws.reshape(-1, task.outputs, task.outputs).astype(np.float64)
        return matthews_of(matrices) if metric == "matthews" else f1_of(matrices)
    at_once = max(_IN_MEMORY // len(labels), 1)
    sizes = (min(at_once, RESAMPLES - start) for start in range(0, RESAMPLES, at_once))
    samples = (random.integers(len(labels), size=(rows, len(labels))) for rows in sizes)
    return np.concatenate([correlations(labels[rows], predicted[rows], metric) for rows in samples])


def resampled_sets(labels: Array, *predicted: Array) -> Iterator[tuple[Floats, list[Array]]]:
    """Resample the rows of a multi-label task.

    Drawing rows is equivalent to drawing cells of a table of all that occurs in a row: its labels and predictions.

    Args:
        labels: Zeros and ones, [n, labels].
        *predicted: The predictions of one or more models, zeros and ones, [n, labels].

    Yields:
        For a part of the RESAMPLES draws, the numbers of rows, [draws, cells], and of each cell the labels and then
        the predictions, [cells, labels] each.
    """
    random, rows = np.random.default_rng(0), len(labels)
    cells, counts = np.unique(np.hstack([labels, *predicted]), axis=0, return_counts=True)
    sides: list[Array] = np.split(cells, 1 + len(predicted), axis=1)
    at_once = max(_IN_MEMORY // len(cells), 1)
    for start in range(0, RESAMPLES, at_once):
        draws = random.multinomial(rows, counts / rows, size=min(at_once, RESAMPLES - start))
        yield draws.astype(np.float64), sides


def f1_of_sets(rows: Floats, labels: Array, predicted: Array, metric: str) -> Floats:
    """Return F1, as tasks/scoring/metrics.py defines it, of a multi-label task.

    Args:
        rows: The number of rows of each cell, [draws, cells].
        labels: The labels of a cell, zeros and ones, [cells, labels].
        predicted: The predictions of a cell, zeros and ones, [cells, labels].
        metric: f1_micro or f1_macro.

    Returns:
        One value per draw, [draws].
    """
    right, seen = rows @ (labels * predicted), rows @ (labels + predicted)
    if metric == "f1_micro":
        right, seen = right.sum(axis=1, keepdims=True), seen.sum(axis=1, keepdims=True)
    each: Floats = np.divide(2 * right, seen, out=np.zeros_like(right), where=seen > 0)
    mean: Floats = each.mean(axis=1)
    return mean


def correlations(labels: Array, scores: Array, metric: str) -> Floats:
    """Return the correlation of each row of two matrices.

    Args:
        labels: True scores, [draws, n].
        scores: Predicted scores, [draws, n].
        metric: "spearman" for Spearman's rank correlation; Pearson's correlation otherwise.

    Returns:
        One correlation per draw, [draws]; NaN where one side is constant.
    """
    if metric == "spearman":
        labels, scores = stats.rankdata(labels, axis=1), stats.rankdata(scores, axis=1)
    constant = (np.ptp(labels, axis=1) == 0) | (np.ptp(scores, axis=1) == 0)
    labels, scores = (side - side.mean(axis=1, keepdims=True) for side in (labels, scores))
    spread = np.sqrt((labels**2).sum(axis=1) * (scores**2).sum(axis=1))
    found: Floats = np.divide((labels * scores).sum(axis=1), spread, out=np.full(len(labels), np.nan), where=~constant)
    return found


def f1_of(matrices: Floats) -> Floats:
    """Return F1, as tasks/scoring/metrics.py defines it, of confusion matrices.

    Args:
        matrices: Counts, [draws, classes (label), classes (prediction)].

    Returns:
        One value per draw, [draws]: F1 of the positive class if there are two classes, else the mean over the classes.
    """
    right = np.diagonal(matrices, axis1=1, axis2=2)
    seen = matrices.sum(axis=1) + matrices.sum(axis=2)
    each: Floats = np.divide(2 * right, seen, out=np.zeros_like(right), where=seen > 0)
    if each.shape[1] == 2:
        return each[:, 1]
    mean: Floats = each.sum(axis=1) / (seen > 0).sum(axis=1)  # leaves out classes that neither occur nor are predicted
    return mean


def matthews_of(matrices: Floats) -> Floats:
    """Return the Matthews correlation (Gorodkin 2004, equation 8) of confusion matrices; 0 where it is undefined.

    Args:
        matrices: Counts, [draws, classes (label), classes (prediction)].

    Returns:
        One correlation per draw, [draws].
    """
    rows = matrices.sum(axis=(1, 2))
    right = np.trace(matrices, axis1=1, axis2=2)
    labeled, predicted = matrices.sum(axis=2), matrices.sum(axis=1)
    covariance = right * rows - (labeled * predicted).sum(axis=1)
    spread = (rows**2 - (labeled**2).sum(axis=1)) * (rows**2 - (predicted**2).sum(axis=1))
    matthews: Floats = np.divide(covariance, np.sqrt(spread), out=np.zeros_like(covariance), where=spread > 0)
    return matthews
