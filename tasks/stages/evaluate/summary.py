"""Everything that metrics.json says."""

from __future__ import annotations

from typing import Any

from sklearn.metrics import confusion_matrix

from tasks.scoring.baseline import baseline
from tasks.scoring.metrics import as_json
from tasks.scoring.scored import Scored
from tasks.stages.evaluate import slices
from tasks.stages.evaluate.calibration import calibrate
from tasks.stages.evaluate.classes import averages, by_class, most_confused
from tasks.stages.evaluate.operating import operate


def summarise(dev: Scored, heldout: Scored | None = None) -> dict[str, Any]:
    """The dev split's metrics, baseline, slices and, for a classifier, what _classifier says.

    Undefined metrics are None. The held-out split, where preprocess cut one, has its metrics beside them, else None.
    """
    summary = {"task": dev.task.name, "metric": dev.task.metric, **_overall(dev), "slices": slices.measure(dev)}
    summary["baseline"] = baseline(dev.task, dev.labels)
    summary["heldout"] = None if heldout is None else _overall(heldout)
    if dev.task.kind == "classification":
        summary |= _classifier(dev)
    return summary


def _overall(scored: Scored) -> dict[str, Any]:
    return {"rows": len(scored), "metrics": as_json(scored.metrics()), "interval": scored.interval()}


def _classifier(dev: Scored) -> dict[str, Any]:
    """Classes, the confusion matrix [label][prediction] in the labels' order, calibration, confidence, thresholds."""
    counts, operating = confusion_matrix(dev.labels, dev.predicted, labels=range(dev.task.outputs)), operate(dev)
    return {
        "classes": by_class(dev, counts),
        "averages": averages(dev),
        "confusion": counts.tolist(),
        "most_confused": most_confused(dev.task.label_names, counts),
        "calibration": calibrate(dev).as_json(),
        "confidence": slices.by_confidence(dev),
        "operating": operating and operating.as_json(),
    }
