"""The operating points of a binary classifier: precision, recall and ROC for thresholds other than one half."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_curve

from tasks.scoring.metrics import Array
from tasks.scoring.scored import ScoredSplit


@dataclass(frozen=True)
class Point:
    """The metrics if the positive class is predicted from a probability threshold on."""

    about: str
    threshold: float
    precision: float
    recall: float
    false_positive_rate: float
    f1: float


@dataclass(frozen=True)
class OperatingPoints:
    """The precision-recall curve and the ROC curve, the areas below them, and two operating points.

    Attributes:
        positive: The name of the positive class, whose id is 1.
        share: The share of positive rows, which is also the precision of predicting the class for all rows.
        average_precision: The mean precision, weighted by the increase in recall.
        roc_auc: The area below the ROC curve: the probability that a positive row gets a higher probability than a
            negative one.
        recall: The recall of the precision-recall curve, [points].
        precision: The precision of the precision-recall curve, [points].
        false_positive_rate: The false positive rate of the ROC curve, [points].
        true_positive_rate: The true positive rate of the ROC curve, [points].
        points: The threshold of the predictions, and the threshold with the best F1 on these rows.
    """

    positive: str
    share: float
    average_precision: float
    roc_auc: float
    recall: Array
    precision: Array
    false_positive_rate: Array
    true_positive_rate: Array
    points: list[Point]

    def as_json(self) -> dict[str, Any]:
        """Return everything but the curves as JSON."""
        curves = ("recall", "precision", "false_positive_rate", "true_positive_rate")
        return {name: value for name, value in asdict(self).items() if name not in curves}


def operating_points(scored: ScoredSplit) -> OperatingPoints | None:
    """Compute the curves and operating points of the positive class.

    Returns:
        None unless the task has two classes and the split has rows of both.
    """
    if scored.task.outputs != 2 or len(np.unique(scored.labels)) < 2:
        return None
    labels, chances = scored.labels, scored.probabilities[:, 1]
    precision, recall, thresholds = precision_recall_curve(labels, chances, drop_intermediate=True)
    false, true, _ = roc_curve(labels, chances)
    best = thresholds[np.argmax(_f1(precision[:-1], recall[:-1]))]
    points = [
        _point("as predicted", 0.5, labels, scored.predicted == 1),
        _point("best F1", float(best), labels, chances >= best),
    ]
    return OperatingPoints(
        scored.task.label_names[1],
        float(labels.mean()),
        float(average_precision_score(labels, chances)),
        float(auc(false, true)),
        recall,
        precision,
        false,
        true,
        points,
    )


def _point(about: str, threshold: float, labels: Array, chosen: Array) -> Point:
    hits = int((labels[chosen] == 1).sum())
    precision, recall = hits / max(int(chosen.sum()), 1), hits / int((labels == 1).sum())
    false = (int(chosen.sum()) - hits) / int((labels == 0).sum())
    return Point(about, threshold, precision, recall, false, float(_f1(np.array(precision), np.array(recall))))


def _f1(precision: Array, recall: Array) -> Array:
    both = precision + recall
    f1: Array = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0)
    return f1
