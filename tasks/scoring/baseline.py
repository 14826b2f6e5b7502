"""The baseline of a metric: the best value that a constant answer reaches. A useful model must beat it.

The constant is the best one for the measured rows, not the most frequent label of the training rows, so no constant
model beats the baseline.
"""

from __future__ import annotations

import numpy as np

from include.glue import Task
from tasks.scoring.metrics import Array, all_metrics, as_json

#: A correlation is undefined for a constant, but scores that are independent of the text have 0 on average.
_CORRELATIONS = {"pearson": 0.0, "spearman": 0.0}


def baseline(task: Task, labels: Array) -> dict[str, float | None]:
    """Return the best value that a constant answer reaches for each metric.

    Args:
        task: The task, which determines the metrics.
        labels: Class ids or scores, [n], or zeros and ones, [n, labels].

    Returns:
        Metric name to baseline; empty if there are no rows. Precision and recall are left out, because a constant
        answer can maximize either of them at the expense of the other.
    """
    if not len(labels):
        return {}
    if task.kind == "regression":
        return _regression(task, labels)
    if task.kind == "multilabel":
        return _multilabel(labels)
    # With two classes, F1 is that of the positive class, so the majority class is not always the best answer.
    answers = {int(np.bincount(labels).argmax()), *([1] if task.outputs == 2 else [])}
    values = [all_metrics(task, labels, np.eye(task.outputs)[np.full(len(labels), answer)]) for answer in answers]
    return {name: max(one[name] for one in values) for name in ("accuracy", "f1", "matthews")}


def _multilabel(labels: Array) -> dict[str, float | None]:
    """Return the best values over all sets of labels that could be given to every row.

    Of all sets of a size, that of the most frequent labels has the best micro F1. Macro F1 is best if all labels are
    predicted, because a label that is not predicted has an F1 of 0.
    """
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


def _regression(task: Task, labels: Array) -> dict[str, float | None]:
    """Return the squared errors of the mean and the absolute error of the median, which minimize them."""
    mean, median = (all_metrics(task, labels, np.full((len(labels), 1), of(labels))) for of in (np.mean, np.median))
    errors = {name: mean[name] for name in ("mse", "rmse", "r2")} | {"mae": median["mae"]}
    return {**_CORRELATIONS, **as_json(errors)}
