"""What a model reaches that gives every row the same answer: the least that one which reads the text must beat.

The answer is the best that there is for the rows that are measured, not what is most frequent in training. So no
constant model beats it, whichever class it has settled on.
"""

from __future__ import annotations

import numpy as np

from include.glue import Task
from tasks.scoring.metrics import Array, all_metrics, as_json

#: Undefined for a constant; scores that have nothing to do with the text have 0 on average.
_CORRELATIONS = {"pearson": 0.0, "spearman": 0.0}


def baseline(task: Task, labels: Array) -> dict[str, float | None]:
    """Metric name to the best value of a constant answer, for labels [n]; {} when there are none.

    Precision and recall have no entry: a constant answer reaches any of them at the other's cost.
    """
    if not len(labels):
        return {}
    if task.kind == "regression":
        return _regression(task, labels)
    # F1 of two classes is the positive class's, so the majority is not always the best answer.
    answers = {int(np.bincount(labels).argmax()), *([1] if task.outputs == 2 else [])}
    values = [all_metrics(task, labels, np.eye(task.outputs)[np.full(len(labels), answer)]) for answer in answers]
    return {name: max(one[name] for one in values) for name in ("accuracy", "f1", "matthews")}


def _regression(task: Task, labels: Array) -> dict[str, float | None]:
    """Errors are those of the mean, and for the absolute one of the median, which make them smallest."""
    mean, median = (all_metrics(task, labels, np.full((len(labels), 1), of(labels))) for of in (np.mean, np.median))
    errors = {name: mean[name] for name in ("mse", "rmse", "r2")} | {"mae": median["mae"]}
    return {**_CORRELATIONS, **as_json(errors)}
