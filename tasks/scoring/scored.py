"""A labeled split with the logits of a model: the input of evaluations and comparisons."""

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
class ScoredSplit:
    """Labeled rows and the model's logits for them.

    Attributes:
        task: The task.
        rows: Row numbers in the raw file, [n].
        labels: Class ids or scores, [n].
        logits: The model's outputs, [n, outputs]; all finite.
        sentences: The texts, one or two per row.
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
        """Predicted class ids or scores, [n]."""
        return predictions(self.task, self.logits)

    @cached_property
    def probabilities(self) -> Array:
        """Softmax of the logits, [n, outputs]; meaningless for a regression."""
        probabilities: Array = softmax(self.logits.astype(np.float64), axis=1)
        return probabilities

    @cached_property
    def confidence(self) -> Array:
        """Probability of the predicted class, [n]."""
        highest: Array = self.probabilities.max(axis=1)
        return highest

    @cached_property
    def words(self) -> Array:
        """Number of words, separated by white space, in all sentences of each row, [n]."""
        return np.array([sum(len(text.split()) for text in texts) for texts in self.sentences])

    def metrics(self) -> dict[str, float]:
        """Return all metrics of the task by name."""
        return all_metrics(self.task, self.labels, self.logits)

    def interval(self) -> Interval | None:
        """Return the 95 % interval of the task's selection metric, or None if it is undefined."""
        return interval(self.task, self.task.metric, self.labels, self.predicted)

    def at(self, chosen: Array) -> ScoredSplit:
        """Return the part with the rows at these positions, or with the rows that this boolean mask [n] selects."""
        positions = np.arange(len(self))[chosen]
        sentences = [self.sentences[position] for position in positions]
        return ScoredSplit(self.task, self.rows[chosen], self.labels[chosen], self.logits[chosen], sentences)
