"""The metrics of each class, and the most frequent confusions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import precision_recall_fscore_support

from tasks.scoring.intervals import of_class_f1, of_share
from tasks.scoring.metrics import Array
from tasks.scoring.scored import ScoredSplit


def by_class(dev: ScoredSplit, counts: Array) -> dict[str, dict[str, Any]]:
    """Compute the metrics of each class.

    Args:
        dev: The scored dev split.
        counts: The confusion matrix, [labels, predictions].

    Returns:
        Label name to rows, share, precision, recall and F1. The 95 % interval of a metric is None if it has no rows.
    """
    ids = list(range(dev.task.outputs))
    scores = precision_recall_fscore_support(dev.labels, dev.predicted, labels=ids, zero_division=0)
    return {name: entry(at, [column[at] for column in scores], counts) for at, name in enumerate(dev.task.label_names)}


def entry(at: int, scores: list[Any], counts: Array) -> dict[str, Any]:
    """Return the metrics of one class with their intervals.

    Args:
        at: The id of the class.
        scores: The precision, recall, F1 and number of rows of the class.
        counts: The confusion matrix, [labels, predictions].
    """
    right, labeled, predicted = int(counts[at, at]), int(counts[at].sum()), int(counts[:, at].sum())
    rows = int(counts.sum())
    precision, recall, f1, _ = map(float, scores)
    return {
        "rows": labeled,
        "share": labeled / rows,
        "precision": precision,
        "precision_interval": of_share(right, predicted),
        "recall": recall,
        "recall_interval": of_share(right, labeled),
        "f1": f1,
        "f1_interval": of_class_f1(right, predicted - right, labeled - right, rows),
    }


def most_confused(names: tuple[str, ...], counts: Array, shown: int = 15) -> list[dict[str, Any]]:
    """Return the most frequent pairs of a label and a wrong prediction.

    Args:
        names: The names of the classes.
        counts: The confusion matrix, [labels, predictions].
        shown: The maximum number of pairs.

    Returns:
        Pairs with the keys label, prediction, rows, and share (of the label's rows), in descending order of rows.
    """
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:shown]
    pairs = [divmod(int(place), len(names)) for place in order if wrong.flat[place]]
    return [
        {
            "label": names[label],
            "prediction": names[predicted],
            "rows": int(wrong[label, predicted]),
            "share": float(wrong[label, predicted] / counts[label].sum()),
        }
        for label, predicted in pairs
    ]
