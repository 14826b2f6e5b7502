"""Everything that metrics.json says."""

from __future__ import annotations

from typing import Any

from sklearn.metrics import classification_report, confusion_matrix

from tasks.evaluate import slices
from tasks.evaluate.calibration import calibrate
from tasks.metrics import as_json
from tasks.scored import Scored


def summarise(dev: Scored, heldout: Scored | None = None) -> dict[str, Any]:
    """The dev split's metrics, slices and, for a classifier, classes, confusion, calibration and confidence.

    Undefined metrics are None. The held-out split, where preprocess cut one, has its metrics beside them, else None.
    """
    summary = {"task": dev.task.name, "metric": dev.task.metric, **_overall(dev), "slices": slices.measure(dev)}
    summary["heldout"] = None if heldout is None else _overall(heldout)
    if dev.task.kind == "classification":
        summary |= _classifier(dev)
    return summary


def _overall(scored: Scored) -> dict[str, Any]:
    return {"rows": len(scored), "metrics": as_json(scored.metrics()), "interval": scored.interval()}


def _classifier(dev: Scored) -> dict[str, Any]:
    """The classification report by label name, and the confusion matrix [label][prediction] in the labels' order."""
    ids, names = list(range(dev.task.outputs)), list(dev.task.label_names)
    report = classification_report(
        dev.labels, dev.predicted, labels=ids, target_names=names, output_dict=True, zero_division=0
    )
    return {
        "classes": {name: _row(report[name]) for name in (*names, "macro avg", "weighted avg")},
        "confusion": confusion_matrix(dev.labels, dev.predicted, labels=ids).tolist(),
        "calibration": calibrate(dev).as_json(),
        "confidence": slices.by_confidence(dev),
    }


def _row(values: dict[str, float]) -> dict[str, float]:
    return {
        "precision": float(values["precision"]),
        "recall": float(values["recall"]),
        "f1": float(values["f1-score"]),
        "rows": int(values["support"]),
    }
