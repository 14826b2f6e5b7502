"""The metrics of a task, by scikit-learn and scipy, out of labels and logits.

What cannot be computed is NaN, never a number that looks good: every metric when there are no rows or a logit is
not finite, a correlation when labels or scores are all equal, R2 when labels are. (Matthews and F1 have a convention
for a classifier that says one class only, 0, and keep it.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn import metrics as sk

from include.glue import Task

Array = npt.NDArray[Any]

NAMES = {
    "classification": ("accuracy", "precision", "recall", "f1", "matthews"),
    "regression": ("pearson", "spearman", "mse", "rmse", "mae", "r2"),
}


def all_metrics(task: Task, labels: Array, logits: Array) -> dict[str, float]:
    """Every metric of the task's kind, for labels [n] and logits [n, outputs]."""
    if not len(labels) or not np.isfinite(logits).all():
        return dict.fromkeys(NAMES[task.kind], math.nan)
    predicted = predictions(task, logits)
    if task.kind == "regression":
        return _regression(labels, predicted)
    return _classification(labels, predicted, task.outputs)


def main_metric(task: Task, labels: Array, logits: Array) -> float:
    """The metric that decides for this task (higher is better), NaN when it is undefined."""
    return all_metrics(task, labels, logits)[task.metric]


def predictions(task: Task, logits: Array) -> Array:
    """Class ids (int64) or scores (float64), [n], for logits [n, outputs]."""
    if task.kind == "regression":
        return logits[:, 0].astype(np.float64)
    classes: Array = logits.argmax(axis=1)
    return classes


def pearson(labels: Array, scores: Array) -> float:
    """Pearson's correlation, NaN when one side is constant."""
    return math.nan if _constant(labels, scores) else float(stats.pearsonr(labels, scores).statistic)


def spearman(labels: Array, scores: Array) -> float:
    """Spearman's rank correlation, NaN when one side is constant."""
    return math.nan if _constant(labels, scores) else float(stats.spearmanr(labels, scores).statistic)


def matthews(labels: Array, predicted: Array) -> float:
    """Matthews correlation, 0 when labels or predictions are one class only."""
    if _constant(labels, predicted):  # scikit-learn says so too, but with a warning
        return 0.0
    return float(sk.matthews_corrcoef(labels, predicted))


def as_json(values: Mapping[str, float]) -> dict[str, float | None]:
    """The same for a JSON file, which has no NaN: None stands for undefined."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _classification(labels: Array, predicted: Array, classes: int) -> dict[str, float]:
    """Precision, recall and F1 are the positive class's (id 1) for two classes, the mean over classes beyond."""
    positive = [1] if classes == 2 else None
    precision, recall, f1, _ = sk.precision_recall_fscore_support(
        labels, predicted, labels=positive, average="macro", zero_division=0
    )
    return {
        "accuracy": float(sk.accuracy_score(labels, predicted)),
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
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
