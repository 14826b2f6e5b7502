"""The metrics of each label of a multi-label task, and what the choice of thresholds changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sklearn.metrics import multilabel_confusion_matrix, precision_recall_fscore_support

from tasks.scoring.metrics import as_json, averages
from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.evaluate.classes import entry


def labels(dev: ScoredSplit, thresholds: Sequence[float]) -> dict[str, Any]:
    """Return the part of metrics.json about the labels.

    Args:
        dev: The scored dev split, with thresholds that were tuned on other rows.
        thresholds: The thresholds of the model, which were tuned on the dev split, [labels].

    Returns:
        The model's threshold and the metrics of each label, micro and macro averages, and the metrics of the split
        with other thresholds: one half, and those of the model, which look better on these rows than they are.
    """
    others = {"one half": replace(dev, thresholds=None), "tuned on the same rows": dev.at_thresholds(thresholds)}
    return {
        "labels": _by_label(dev, thresholds),
        "averages": {kind: averages(dev.labels, dev.predicted, kind) for kind in ("micro", "macro")},
        "other_thresholds": {about: as_json(split.metrics()) for about, split in others.items()},
    }


def _by_label(dev: ScoredSplit, thresholds: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Return label name to its threshold, rows, share, precision, recall and F1, with 95 % intervals."""
    counts = multilabel_confusion_matrix(dev.labels, dev.predicted)  # [labels, without or with it, predicted or not]
    scores = precision_recall_fscore_support(dev.labels, dev.predicted, zero_division=0)
    return {
        name: {"threshold": thresholds[at], **entry(1, [column[at] for column in scores], counts[at])}
        for at, name in enumerate(dev.task.label_names)
    }
