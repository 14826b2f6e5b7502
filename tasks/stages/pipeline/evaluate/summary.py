"""The content of metrics.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from include.glue import Task
from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.encoder.inference import predict_logits
from tasks.encoder.models import Classifier
from tasks.scoring.baseline import baseline
from tasks.scoring.metrics import as_json, averages
from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.evaluate import mistakes, slices
from tasks.stages.pipeline.evaluate.calibration import calibrate
from tasks.stages.pipeline.evaluate.classes import by_class, most_confused
from tasks.stages.pipeline.evaluate.labels import labels
from tasks.stages.pipeline.evaluate.operating_points import operating_points


def score(task: Task, model: Classifier, folder: Path) -> ScoredSplit:
    """Compute the model's logits for a split.

    Args:
        task: The task.
        model: The model.
        folder: The folder of the split in preprocess's artifact.

    Raises:
        BadInput: If the split is empty, or if a logit is not finite.
    """
    table = TokenTable.open(folder)
    if not len(table):
        raise BadInput(f"{folder} contains no rows to evaluate on: add rows to the split and run validate again")
    logits = predict_logits(model, table)
    if not np.isfinite(logits).all():
        raise BadInput("the model's logits are not finite, so its training diverged: lower training.learning_rate")
    return ScoredSplit.of(task, table, logits)


def summarize(dev: ScoredSplit, heldout: ScoredSplit | None = None, thresholds: Sequence[float] = ()) -> dict[str, Any]:
    """Compute everything that metrics.json contains.

    Args:
        dev: The scored dev split.
        heldout: The scored held-out split; None if preprocess has not created one.
        thresholds: The thresholds of a multi-label model, [labels].

    Returns:
        Metrics, baseline, slices and the row numbers of the worst mistakes of the dev split, the metrics of the
        held-out split and, for a classification, the entries of `_classifier`, or for a multi-label task those of
        `labels`. Undefined metrics are None.
    """
    task = dev.task
    about = {"task": task.name, "kind": task.kind, "label_names": list(task.label_names), "metric": task.metric}
    summary = {**about, **_overall(dev), "slices": slices.measure(dev)}
    summary["baseline"] = baseline(task, dev.labels)
    summary["heldout"] = None if heldout is None else _overall(heldout)
    summary["mistakes"] = [mistake["row"] for mistake in mistakes.worst(dev)]
    if task.kind == "classification":
        summary |= _classifier(dev)
    if task.kind == "multilabel":
        summary |= labels(dev, thresholds)
    return summary


def _overall(scored: ScoredSplit) -> dict[str, Any]:
    return {"rows": len(scored), "metrics": as_json(scored.metrics()), "interval": scored.interval()}


def _classifier(dev: ScoredSplit) -> dict[str, Any]:
    """Return classes, averages, confusion matrix [label][prediction], calibration, confidence and operating points."""
    counts, operating = (
        confusion_matrix(dev.labels, dev.predicted, labels=range(dev.task.outputs)),
        operating_points(dev),
    )
    return {
        "classes": by_class(dev, counts),
        "averages": {kind: averages(dev.labels, dev.predicted, kind) for kind in ("macro", "weighted")},
        "confusion": counts.tolist(),
        "most_confused": most_confused(dev.task.label_names, counts),
        "calibration": calibrate(dev).as_json(),
        "confidence": slices.by_confidence(dev),
        "operating": operating and operating.as_json(),
    }
