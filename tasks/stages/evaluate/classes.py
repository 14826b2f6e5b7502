"""Each class by itself: how many rows it has, and how well they are found."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import precision_recall_fscore_support

from tasks.scoring.intervals import of_class_f1, of_share
from tasks.scoring.metrics import Array
from tasks.scoring.scored import Scored


def by_class(dev: Scored, counts: Array) -> dict[str, dict[str, Any]]:
    """Label name to rows, share, precision, recall and F1, each with its 95 % interval (None: no rows to tell by).

    `counts` is the confusion matrix, [labels, predictions].
    """
    ids = list(range(dev.task.outputs))
    scores = precision_recall_fscore_support(dev.labels, dev.predicted, labels=ids, zero_division=0)
    return {name: _entry(at, [column[at] for column in scores], counts) for at, name in enumerate(dev.task.label_names)}


def averages(dev: Scored) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 as means over the classes, plain and weighted by their rows."""
    ids, found = list(range(dev.task.outputs)), {}
    for kind in ("macro", "weighted"):
        values = precision_recall_fscore_support(
            dev.labels, dev.predicted, labels=ids, average=kind, zero_division=0
        )  # fmt: skip
        found[kind] = dict(zip(("precision", "recall", "f1"), map(float, values[:3]), strict=True))
    return found


def _entry(at: int, scores: list[Any], counts: Array) -> dict[str, Any]:
    right, labelled, predicted = int(counts[at, at]), int(counts[at].sum()), int(counts[:, at].sum())
    rows = int(counts.sum())
    precision, recall, f1, _ = map(float, scores)
    return {
        "rows": labelled,
        "share": labelled / rows,
        "precision": precision,
        "precision_interval": of_share(right, predicted),
        "recall": recall,
        "recall_interval": of_share(right, labelled),
        "f1": f1,
        "f1_interval": of_class_f1(right, predicted - right, labelled - right, rows),
    }


def most_confused(names: tuple[str, ...], counts: Array, shown: int = 15) -> list[dict[str, Any]]:
    """Pairs of a label and a wrong prediction for it, those with the most rows first, and their share of the label."""
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
