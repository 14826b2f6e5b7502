"""Parts of the dev split that are looked at by themselves: lengths and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tasks.scoring.metrics import NAMES, Array
from tasks.scoring.scored import Scored


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


def slices_of(scored: Scored) -> list[Slice]:
    """The slices that hold rows. They depend on sentences and labels alone, never on what a model says."""
    return [part for part in (*_lengths(scored), *_labels(scored)) if part.mask.any()]


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
