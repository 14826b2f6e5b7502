"""Parts of the dev split that are looked at by themselves: lengths, labels, the most confident rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.evaluate.scored import Scored
from tasks.metrics import NAMES, Array, as_json

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Slice:
    """A named part of the rows.

    Attributes:
        name: as gate.slices writes it, "length:short".
        about: its bounds in words.
        mask: which rows belong to it, [n].
        metrics: what is measured on it; a floor in gate.slices is for the first.
    """

    name: str
    about: str
    mask: Array
    metrics: tuple[str, ...]


def measure(scored: Scored) -> dict[str, dict[str, Any]]:
    """Slice name to its bounds, rows, the metric that a floor is for, and the metrics. Empty slices are left out."""
    return {part.name: _entry(scored, part) for part in [*_lengths(scored), *_labels(scored)] if part.mask.any()}


def by_confidence(scored: Scored) -> list[dict[str, Any]]:
    """Accuracy over the most confident share of the rows, and the lowest confidence among them."""
    order = np.argsort(-scored.confidence, kind="stable")
    right = (scored.labels == scored.predicted)[order]
    found = []
    for share in SHARES:
        rows = max(round(share * len(scored)), 1)
        lowest = float(scored.confidence[order[rows - 1]])
        found.append({"share": share, "rows": rows, "accuracy": float(right[:rows].mean()), "confidence": lowest})
    return found


def _entry(scored: Scored, part: Slice) -> dict[str, Any]:
    found = as_json(scored.at(part.mask).metrics())
    values = {metric: found[metric] for metric in part.metrics}
    return {"about": part.about, "rows": int(part.mask.sum()), "metric": part.metrics[0], **values}


def _lengths(scored: Scored) -> Iterator[Slice]:
    """Thirds by number of words. Rows of equal length stay together, so the thirds are not always even."""
    words, task = scored.words, scored.task
    first, second = np.quantile(words, [1 / 3, 2 / 3], method="lower").tolist()
    metrics = (task.metric, *(name for name in NAMES[task.kind] if name != task.metric))
    yield Slice("length:short", f"up to {first} words", words <= first, metrics)
    yield Slice("length:medium", f"{first + 1} to {second} words", (first < words) & (words <= second), metrics)
    yield Slice("length:long", f"{second + 1} words and more", words > second, metrics)


def _labels(scored: Scored) -> Iterator[Slice]:
    """Rows of one label have an accuracy (that label's recall) only: the other metrics compare labels."""
    for label, name in enumerate(scored.task.label_names):
        yield Slice(f"label:{name}", f"labelled {name}", scored.labels == label, ("accuracy",))
