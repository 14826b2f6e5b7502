"""A split with a model's logits beside it: what an evaluation and a comparison look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import softmax

from include.glue import Task
from tasks.scoring.intervals import Interval, interval
from tasks.scoring.metrics import Array, all_metrics, predictions


@dataclass(frozen=True)
class Scored:
    """Labelled rows and the model's logits for them.

    Attributes:
        task: what is learned.
        rows: row number in the raw file, [n].
        labels: class ids or scores, [n].
        logits: [n, outputs], finite.
        sentences: the texts, one or two a row.
    """

    task: Task
    rows: Array
    labels: Array
    logits: Array
    sentences: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def predicted(self) -> Array:
        """Class ids or scores, [n]."""
        return predictions(self.task, self.logits)

    @cached_property
    def probabilities(self) -> Array:
        """Softmax of the logits, [n, outputs]; means nothing for a regression."""
        probabilities: Array = softmax(self.logits.astype(np.float64), axis=1)
        return probabilities

    @cached_property
    def confidence(self) -> Array:
        """Probability of the class that was predicted, [n]."""
        highest: Array = self.probabilities.max(axis=1)
        return highest

    @cached_property
    def words(self) -> Array:
        """Words in a row's sentences together, split at white space, [n]."""
        return np.array([sum(len(text.split()) for text in texts) for texts in self.sentences])

    def metrics(self) -> dict[str, float]:
        """Every metric of the task."""
        return all_metrics(self.task, self.labels, self.logits)

    def interval(self) -> Interval | None:
        """95 % interval of the task's own metric."""
        return interval(self.task, self.task.metric, self.labels, self.predicted)

    def at(self, chosen: Array) -> Scored:
        """Only the rows at these positions (or under this mask)."""
        positions = np.arange(len(self))[chosen]
        sentences = [self.sentences[position] for position in positions]
        return Scored(self.task, self.rows[chosen], self.labels[chosen], self.logits[chosen], sentences)
