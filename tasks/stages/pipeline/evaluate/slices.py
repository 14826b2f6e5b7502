"""Metrics on parts of the dev split: the slices, and the most confident rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.scoring.intervals import interval
from tasks.scoring.metrics import as_json
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.slices import RECALL, Slice, slices_of

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)


def measure(scored: ScoredSplit) -> dict[str, dict[str, Any]]:
    """Compute the metrics of each slice that has rows.

    Returns:
        Slice name to its description, its number of rows, the metric that a threshold applies to, the 95 % interval of
        that metric, and all metrics.
    """
    return {part.name: _entry(scored, part) for part in slices_of(scored)}


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


def _entry(scored: ScoredSplit, part: Slice) -> dict[str, Any]:
    metric, labels, predicted = part.metrics[0], part.of(scored.labels), part.of(scored.predicted)
    between = interval(scored.task, metric, labels, predicted)
    about = {"about": part.about, "rows": len(labels), "metric": metric, "interval": between}
    if metric == RECALL:
        return about | {metric: float((labels == predicted).mean())}
    found = as_json(scored.at(part.mask).metrics())
    return about | {name: found[name] for name in part.metrics}
