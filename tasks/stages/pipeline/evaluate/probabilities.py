"""What a classifier's probabilities are worth: their calibration, and the results at other thresholds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_curve

from tasks.scoring.metrics import Array, f1_of_rates
from tasks.scoring.scored import ScoredSplit

BINS = 15  # as Guo et al. (2017)
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)


def calibrate(scored: ScoredSplit) -> dict[str, Any]:
    """Return the expected calibration error (equation 3 in Guo et al. 2017), and the bins that contain rows.

    A bin has the rows whose confidence is in (low, high], their mean confidence and their accuracy.
    """
    edges = np.linspace(0, 1, BINS + 1)
    places = np.searchsorted(edges, scored.confidence, side="left") - 1
    right = scored.labels == scored.predicted
    bins = []
    for place in np.unique(places):
        inside = places == place
        bounds = {"low": float(edges[place]), "high": float(edges[place + 1]), "rows": int(inside.sum())}
        means = {"confidence": float(scored.confidence[inside].mean()), "accuracy": float(right[inside].mean())}
        bins.append(bounds | means)
    gaps = sum(one["rows"] * abs(one["accuracy"] - one["confidence"]) for one in bins)
    return {"ece": gaps / len(scored), "bins": bins}


def by_confidence(scored: ScoredSplit) -> list[dict[str, Any]]:
    """Return, for each of SHARES, the accuracy and the lowest confidence of the most confident rows."""
    order = np.argsort(-scored.confidence, kind="stable")
    right = (scored.labels == scored.predicted)[order]
    found = []
    for share in SHARES:
        rows = max(round(share * len(scored)), 1)
        lowest = float(scored.confidence[order[rows - 1]])
        found.append({"share": share, "rows": rows, "accuracy": float(right[:rows].mean()), "confidence": lowest})
    return found


@dataclass(frozen=True)
class OperatingPoints:
    """The precision-recall curve and the ROC curve, the areas below them, and two operating points.

    The positive class has the id 1 and a share of the rows. The points are those of the predictions' threshold and of
    the one with the best F1. The curves are recall and precision, and false and true positive rate, [points] each.
    """

    positive: str
    share: float
    average_precision: float
    roc_auc: float
    points: list[dict[str, Any]]
    curves: tuple[tuple[Array, Array], tuple[Array, Array]]

    def as_json(self) -> dict[str, Any]:
        """Return everything but the curves as JSON."""
        return {name: value for name, value in asdict(self).items() if name != "curves"}


def operating_points(scored: ScoredSplit) -> OperatingPoints | None:
    """Compute the curves and operating points; None unless the task has two classes and the split rows of both."""
    if scored.task.outputs != 2 or len(np.unique(scored.labels)) < 2:
        return None
    labels, chances = scored.labels, scored.probabilities[:, 1]
    precision, recall, thresholds = precision_recall_curve(labels, chances, drop_intermediate=True)
    false, true, _ = roc_curve(labels, chances)
    best = thresholds[np.argmax(f1_of_rates(precision[:-1], recall[:-1]))]
    points = [
        _point("as predicted", 0.5, labels, scored.predicted == 1),
        _point("best F1", float(best), labels, chances >= best),
    ]
    average, area = float(average_precision_score(labels, chances)), float(auc(false, true))
    curves = (recall, precision), (false, true)
    return OperatingPoints(scored.task.label_names[1], float(labels.mean()), average, area, points, curves)


def _point(about: str, threshold: float, labels: Array, chosen: Array) -> dict[str, Any]:
    """Return the metrics if the positive class is predicted from a probability on, for the chosen rows."""
    hits = int((labels[chosen] == 1).sum())
    precision, recall = hits / max(int(chosen.sum()), 1), hits / int((labels == 1).sum())
    return {
        "about": about,
        "threshold": threshold,
        "precision": precision,
        "recall": recall,
        "false_positive_rate": (int(chosen.sum()) - hits) / int((labels == 0).sum()),
        "f1": float(f1_of_rates(np.array(precision), np.array(recall))),
    }
