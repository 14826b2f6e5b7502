"""Slices: parts of the dev split, by text length and by label, that are evaluated separately."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from include.experiment import Experiment
from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.scoring.metrics import NAMES
from tasks.scoring.predictions import Array
from tasks.scoring.scored import ScoredSplit

#: The metric of the rows that have a label: the share of them that are right.
RECALL = "recall"


@dataclass(frozen=True)
class Slice:
    """A named part of the rows."""

    name: str  # as in gate.slices, such as "length:short"
    about: str  # its bounds in words
    mask: Array  # whether each row belongs to the slice, [n]
    metrics: tuple[str, ...]  # that are computed on it; a threshold in gate.slices applies to the first one
    label: int | None = None  # the only label of a multi-label task that counts; None for all

    def of(self, answers: Array) -> Array:
        """Return the slice of labels or predictions, [n] or [n, labels]."""
        return answers[self.mask] if self.label is None else answers[self.mask, self.label]


def slices_of(scored: ScoredSplit) -> list[Slice]:
    """Return the slices that contain rows. They depend on sentences and labels only, not on predictions."""
    return [part for part in (*_lengths(scored), *_labels(scored)) if part.mask.any()]


def check_gate(experiment: Experiment, dev: Path) -> None:
    """Raise BadInput if gate.slices names a slice without rows in the folder of the dev split: no model could pass."""
    if not experiment.gate.slices:
        return
    table, task = TokenTable.open(dev), experiment.task
    rows = len(table.documents)
    split = ScoredSplit.of(task, table, np.zeros((rows, task.outputs)))
    there = [part.name for part in slices_of(split)] if rows else []
    if empty := sorted(set(experiment.gate.slices) - set(there)):
        raise BadInput(
            f'gate.slices names "{empty[0]}", but none of the {rows:,} dev rows is in it, so no model could pass: add '
            f"such rows to dev, or leave it out. The slices with rows are {', '.join(there) or 'none'}"
        )


def _lengths(scored: ScoredSplit) -> Iterator[Slice]:
    """Yield the thirds by number of words. Rows of equal length share a slice, so the thirds may differ in size."""
    words, task = scored.words, scored.task
    first, second = np.quantile(words, [1 / 3, 2 / 3], method="lower").tolist()
    metrics = (task.metric, *(name for name in NAMES[task.kind] if name != task.metric))
    yield Slice("length:short", f"up to {first} words", words <= first, metrics)
    yield Slice("length:medium", f"{first + 1} to {second} words", (first < words) & (words <= second), metrics)
    yield Slice("length:long", f"{second + 1} words and more", words > second, metrics)


def _labels(scored: ScoredSplit) -> Iterator[Slice]:
    """Yield one slice per label. Its only metric is the label's recall: other metrics need several labels."""
    several = scored.task.kind == "multilabel"
    for label, name in enumerate(scored.task.label_names):
        mask = scored.labels[:, label] == 1 if several else scored.labels == label
        yield Slice(f"label:{name}", f"labeled {name}", mask, (RECALL,), label if several else None)
