"""The metrics of a task, computed from labels and logits by scikit-learn and SciPy.

A metric that cannot be computed is NaN, so that it is never mistaken for a good value. This applies to all metrics if
there are no rows or a logit is not finite, to correlations if all labels or all scores are equal, and to R2 if all
labels are equal. Matthews correlation and F1 are 0 by convention for a classifier that predicts a single class.

As in scikit-learn, a mean over classes leaves out those that no row has and that are never predicted, and a mean over
the labels of a multi-label task is over all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import expit, softmax
from sklearn import metrics as sk

from include.glue import Kind, Task

Array = npt.NDArray[Any]

NAMES = {
    "classification": ("accuracy", "precision", "recall", "f1", "matthews"),
    "multilabel": ("f1_micro", "f1_macro", "subset_accuracy", "hamming_loss"),
    "regression": ("pearson", "spearman", "mse", "rmse", "mae", "r2"),
}


def all_metrics(task: Task, labels: Array, logits: Array) -> dict[str, float]:
    """Compute all metrics for the kind of task.

    Args:
        task: The task.
        labels: Class ids or scores, [n], or zeros and ones, [n, labels].
        logits: The model's outputs, [n, outputs].

    Returns:
        Metric name to value, which is NaN where the metric is undefined. The names are those of NAMES.
    """
    if not len(labels) or not np.isfinite(logits).all():
        return dict.fromkeys(NAMES[task.kind], math.nan)
    predicted = predictions(task, logits)
    if task.kind == "regression":
        return _regression(labels, predicted)
    if task.kind == "multilabel":
        return multilabel_metrics(labels, predicted)
    return _classification(labels, predicted, task.outputs)


def main_metric(task: Task, labels: Array, logits: Array) -> float:
    """Compute the task's selection metric, for which higher is better; NaN if it is undefined.

    Args:
        task: The task, which names the metric.
        labels: Class ids or scores, [n], or zeros and ones, [n, labels].
        logits: The model's outputs, [n, outputs].
    """
    return all_metrics(task, labels, logits)[task.metric]


def predictions(task: Task, logits: Array) -> Array:
    """Return the predicted class ids (int64) or scores (float64), [n], for logits [n, outputs].

    For a multi-label task, return whether each label is more probable than not: zeros and ones (int64), [n, labels].
    """
    if task.kind == "regression":
        return logits[:, 0].astype(np.float64)
    if task.kind == "multilabel":
        return (logits >= 0).astype(np.int64)
    classes: Array = logits.argmax(axis=1)
    return classes


def probabilities(kind: Kind, logits: Array) -> Array:
    """Return the probabilities of all classes, or of each label of a multi-label task, float64 [n, outputs].

    For a regression they are meaningless.
    """
    logits = logits.astype(np.float64)
    found: Array = expit(logits) if kind == "multilabel" else softmax(logits, axis=1)
    return found


def multilabel_metrics(labels: Array, predicted: Array) -> dict[str, float]:
    """Compute the metrics of a multi-label task.

    Args:
        labels: Zeros and ones, [n, labels] with n >= 1.
        predicted: Zeros and ones, [n, labels].

    Returns:
        Micro F1, over all labels of all rows; macro F1, the mean of the labels' F1; the share of rows with exactly the
        right labels; and the Hamming loss, the share of wrong decisions. The F1 of a label that neither occurs nor is
        predicted is 0, as in scikit-learn.
    """
    return {
        "f1_micro": averages(labels, predicted, "micro")["f1"],
        "f1_macro": averages(labels, predicted, "macro")["f1"],
        "subset_accuracy": float((labels == predicted).all(axis=1).mean()),
        "hamming_loss": float((labels != predicted).mean()),
    }


def averages(
    labels: Array, predicted: Array, kind: Literal["micro", "macro", "weighted"], of: list[int] | None = None
) -> dict[str, float]:
    """Return averages of precision, recall and F1 over classes, or over the labels of a multi-label task.

    Args:
        labels: Class ids, [n], or zeros and ones, [n, labels].
        predicted: Predictions of the same shape.
        kind: "macro" is the mean over the classes, "weighted" the mean weighted by the rows of each class, "micro" is
            over all labels of all rows.
        of: The classes; None for all that rows or predictions have, and for all labels of a multi-label task.
    """
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
    if _constant(labels, predicted):  # scikit-learn returns 0, too, but warns
        return 0.0
    return float(sk.matthews_corrcoef(labels, predicted))


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
