"""The content of metrics.json: the metrics of the dev split as a whole, by class or label, slice, and threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import (
    auc,
    average_precision_score,
    confusion_matrix,
    multilabel_confusion_matrix,
    precision_recall_curve,
    precision_recall_fscore_support,
    roc_curve,
)

from include.glue import Task
from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.encoder.models import Classifier, predict_logits
from tasks.scoring.calibration import reliability
from tasks.scoring.intervals import interval, of_class_f1, of_share
from tasks.scoring.metrics import as_json, averages, baseline, f1_of_rates
from tasks.scoring.predictions import Array
from tasks.scoring.risk import Guard
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.slices import RECALL, Slice, slices_of
from tasks.stages.pipeline.evaluate.rows import worst_places

MOST_CONFUSED = 15  # pairs of a label and a wrong prediction
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
RISKS = (0.01, 0.02, 0.05, 0.1)


def score(task: Task, model: Classifier, folder: Path) -> ScoredSplit:
    """Compute the model's logits for a split in the artifact of preprocess."""
    table = TokenTable.open(folder)
    if not len(table):
        raise BadInput(f"{folder} contains no rows to evaluate on: add rows to the split and run validate again")
    logits = predict_logits(model, table)
    if not np.isfinite(logits).all():
        raise BadInput("the model's logits are not finite, so its training diverged: lower training.learning_rate")
    return ScoredSplit.of(task, table, logits, model.spec.temperature)


def summarize(dev: ScoredSplit, heldout: ScoredSplit | None = None, thresholds: Sequence[float] = ()) -> dict[str, Any]:
    """Compute everything that metrics.json contains. Undefined metrics are None.

    dev has temperatures and thresholds fitted to other rows; `thresholds` are those of the model, [labels].
    """
    task = dev.task
    about = {"task": task.name, "kind": task.kind, "label_names": list(task.label_names), "metric": task.metric}
    summary = {**about, **_overall(dev), "slices": {part.name: _slice(dev, part) for part in slices_of(dev)}}
    summary["baseline"] = baseline(task, dev.labels)
    summary["heldout"] = None if heldout is None else _overall(heldout)
    summary["mistakes"] = dev.rows[worst_places(dev)].tolist()
    if task.kind == "classification":
        summary |= _classifier(dev)
    if task.kind == "multilabel":
        summary |= _labels(dev, thresholds)
    if task.kind != "regression":
        before, after = (reliability(task.kind, dev.labels, split.probabilities) for split in (dev.uncalibrated(), dev))
        summary["calibration"] = {**after, "before": before}
    return summary


def _overall(scored: ScoredSplit) -> dict[str, Any]:
    return {"rows": len(scored), "metrics": as_json(scored.metrics()), "interval": scored.interval()}


def _slice(scored: ScoredSplit, part: Slice) -> dict[str, Any]:
    """Return the metrics of a slice, with the 95 % interval of the metric that a threshold applies to."""
    metric, labels, predicted = part.metrics[0], part.of(scored.labels), part.of(scored.predicted)
    between = interval(scored.task, metric, labels, predicted)
    about = {"about": part.about, "rows": len(labels), "metric": metric, "interval": between}
    if metric == RECALL:
        return about | {metric: float((labels == predicted).mean())}
    found = as_json(scored.at(part.mask).metrics())
    return about | {name: found[name] for name in part.metrics}


def _classifier(dev: ScoredSplit) -> dict[str, Any]:
    ids, names = list(range(dev.task.outputs)), dev.task.label_names
    counts = confusion_matrix(dev.labels, dev.predicted, labels=ids)  # [labels, predictions]
    scores = precision_recall_fscore_support(dev.labels, dev.predicted, labels=ids, zero_division=0)
    operating = operating_points(dev)
    return {
        "classes": {name: _entry(at, [column[at] for column in scores], counts) for at, name in enumerate(names)},
        "averages": {kind: averages(dev.labels, dev.predicted, kind) for kind in ("macro", "weighted")},
        "confusion": counts.tolist(),
        "most_confused": _most_confused(names, counts),
        "confidence": by_confidence(dev),
        "risk": by_risk(dev),
        "operating": operating and operating.as_json(),
    }


def _labels(dev: ScoredSplit, thresholds: Sequence[float]) -> dict[str, Any]:
    """Return the metrics of each label, and those of the split at one half and at thresholds tuned on its own rows."""
    others = {"one half": replace(dev, thresholds=None), "tuned on the same rows": dev.at_thresholds(thresholds)}
    counts = multilabel_confusion_matrix(dev.labels, dev.predicted)  # [labels, without or with it, predicted or not]
    scores = precision_recall_fscore_support(dev.labels, dev.predicted, zero_division=0)
    return {
        "labels": {
            name: {"threshold": thresholds[at], **_entry(1, [column[at] for column in scores], counts[at])}
            for at, name in enumerate(dev.task.label_names)
        },
        "averages": {kind: averages(dev.labels, dev.predicted, kind) for kind in ("micro", "macro")},
        "other_thresholds": {about: as_json(split.metrics()) for about, split in others.items()},
    }


def _entry(at: int, scores: list[Any], counts: Array) -> dict[str, Any]:
    """Return the metrics of a class with intervals, from its scores and the confusion matrix, [labels, predictions]."""
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


def _most_confused(names: Sequence[str], counts: Array) -> list[dict[str, Any]]:
    """Return the most frequent pairs of a label and a wrong prediction, each with its share of the label's rows."""
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSED]
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


def by_risk(scored: ScoredSplit) -> list[dict[str, Any]]:
    """Return from which confidence each of RISKS is certified (None: from none), the share answered, and its error."""
    evidence, found = scored.evidence(), []
    for max_risk in RISKS:
        guard = Guard.of(scored.task.kind, scored.task.label_names, None, max_risk, evidence)
        figures = {"confidence": guard.least, "answered": guard.answered, "error": guard.error}
        found.append({"max_risk": max_risk, **figures})
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
