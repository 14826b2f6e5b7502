"""The metrics of a task, computed from labels and logits by scikit-learn and SciPy.

A metric that cannot be computed is NaN, so that it is never mistaken for a good value: without rows, if a logit is not
finite, and for correlations and R2 if all labels or scores are equal. Matthews correlation and F1 are 0 by convention
for a classifier that predicts a single class. As in scikit-learn, a mean over classes leaves out those that no row has
and that are never predicted, and a mean over the labels of a multi-label task is over all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from scipy import stats
from sklearn import metrics as sk

from include.glue import Task
from tasks.scoring.predictions import Array, Thresholds, predictions

NAMES = {
    "classification": ("accuracy", "precision", "recall", "f1", "matthews"),
    "multilabel": ("f1_micro", "f1_macro", "subset_accuracy", "hamming_loss"),
    "regression": ("pearson", "spearman", "mse", "rmse", "mae", "r2"),
}


def all_metrics(task: Task, labels: Array, logits: Array, thresholds: Thresholds = ()) -> dict[str, float]:
    """Compute the metrics that NAMES lists for the kind of the task; NaN where one is undefined.

    Labels are class ids or scores, [n], or zeros and ones, [n, labels]. For the others see `predictions`.
    """
    if not len(labels) or not np.isfinite(logits).all():
        return dict.fromkeys(NAMES[task.kind], math.nan)
    predicted = predictions(task.kind, logits, thresholds)
    if task.kind == "regression":
        return _regression(labels, predicted)
    if task.kind == "multilabel":
        return multilabel_metrics(labels, predicted)
    return _classification(labels, predicted, task.outputs)


def multilabel_metrics(labels: Array, predicted: Array) -> dict[str, float]:
    """Compute the metrics of a multi-label task from zeros and ones, [n, labels] with n >= 1."""
    return {
        "f1_micro": averages(labels, predicted, "micro")["f1"],
        "f1_macro": averages(labels, predicted, "macro")["f1"],
        "subset_accuracy": float((labels == predicted).all(axis=1).mean()),
        "hamming_loss": float((labels != predicted).mean()),
    }


def averages(
    labels: Array, predicted: Array, kind: Literal["micro", "macro", "weighted"], of: list[int] | None = None
) -> dict[str, float]:
    """Return averages of precision, recall and F1 over classes (by default all that occur) or labels."""
    values = sk.precision_recall_fscore_support(labels, predicted, labels=of, average=kind, zero_division=0)
    return dict(zip(("precision", "recall", "f1"), map(float, values[:3]), strict=True))


def pearson(labels: Array, scores: Array) -> float:
    """Return Pearson's correlation, or NaN if one side is constant."""
    return math.nan if _constant(labels, scores) else float(stats.pearsonr(labels, scores).statistic)


def spearman(labels: Array, scores: Array) -> float:
    """Return Spearman's rank correlation, or NaN if one side is constant."""
    return math.nan if _constant(labels, scores) else float(stats.spearmanr(labels, scores).statistic)


def matthews(labels: Array, predicted: Array) -> float:
    """Return the Matthews correlation, or 0 if the labels or the predictions consist of a single class."""
    if _constant(labels, predicted):  # for which scikit-learn warns
        return 0.0
    return float(sk.matthews_corrcoef(labels, predicted))


def f1_of_rates(precision: Array, recall: Array) -> Array:
    """Return the harmonic mean of precision and recall, 0 where both are 0."""
    both = precision + recall
    f1: Array = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0)
    return f1


def baseline(task: Task, labels: Array) -> dict[str, float | None]:
    """Return the best value that a constant answer reaches for each metric; nothing if there are no rows.

    The constant is the best one for these rows, so no constant model beats the baseline. Precision and recall are left
    out, because a constant answer can maximize either of them at the expense of the other. Labels are class ids or
    scores, [n], or zeros and ones, [n, labels].
    """
    if not len(labels):
        return {}
    if task.kind == "regression":
        return _regression_baseline(task, labels)
    if task.kind == "multilabel":
        return _multilabel_baseline(labels)
    # With two classes, F1 is that of the positive class, so the majority class is not always the best answer.
    answers = {int(np.bincount(labels).argmax()), *([1] if task.outputs == 2 else [])}
    values = [all_metrics(task, labels, np.eye(task.outputs)[np.full(len(labels), answer)]) for answer in answers]
    return {name: max(one[name] for one in values) for name in ("accuracy", "f1", "matthews")}


def _multilabel_baseline(labels: Array) -> dict[str, float | None]:
    # Of all sets of a size, the most frequent labels have the best micro F1. Macro F1 is best if all are predicted.
    rows, each = labels.shape
    counts = np.sort(labels.sum(axis=0))[::-1]
    micro = 2 * counts.cumsum() / (rows * np.arange(1, each + 1) + counts.sum())
    same = np.unique(labels, axis=0, return_counts=True)[1]
    return {
        "f1_micro": float(micro.max()),
        "f1_macro": float((2 * counts / (rows + counts)).mean()),
        "subset_accuracy": float(same.max() / rows),
        "hamming_loss": float(np.minimum(counts, rows - counts).sum() / labels.size),
    }


def _regression_baseline(task: Task, labels: Array) -> dict[str, float | None]:
    mean, median = (all_metrics(task, labels, np.full((len(labels), 1), of(labels))) for of in (np.mean, np.median))
    errors = {name: mean[name] for name in ("mse", "rmse", "r2")} | {"mae": median["mae"]}
    # A correlation is undefined for a constant, but scores that are independent of the text have 0 on average.
    return {"pearson": 0.0, "spearman": 0.0, **as_json(errors)}


def as_json(values: Mapping[str, float]) -> dict[str, float | None]:
    """Replace values that are not finite by None, because JSON has no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _classification(labels: Array, predicted: Array, classes: int) -> dict[str, float]:
    """Compute precision, recall and F1 of the positive class (id 1) for two classes, else their means over classes."""
    return {
        "accuracy": float(sk.accuracy_score(labels, predicted)),
        **averages(labels, predicted, "macro", [1] if classes == 2 else None),
        "matthews": matthews(labels, predicted),
    }


def _regression(labels: Array, scores: Array) -> dict[str, float]:
    return {
        "pearson": pearson(labels, scores),
        "spearman": spearman(labels, scores),
        "mse": float(sk.mean_squared_error(labels, scores)),
        "rmse": float(sk.root_mean_squared_error(labels, scores)),
        "mae": float(sk.mean_absolute_error(labels, scores)),
        "r2": math.nan if _constant(labels) else float(sk.r2_score(labels, scores)),
    }


def _constant(*columns: Array) -> bool:
    return any(bool(np.ptp(column) == 0) for column in columns)
