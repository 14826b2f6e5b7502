"""A labeled split with the logits of a model: the input of evaluations and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from include.glue import Task
from include.paired import Interval
from tasks.encoder.batching import TokenTable
from tasks.scoring import risk
from tasks.scoring.calibration import fit_temperature
from tasks.scoring.folds import folds
from tasks.scoring.intervals import interval
from tasks.scoring.metrics import all_metrics
from tasks.scoring.predictions import Array, predictions, probabilities
from tasks.scoring.thresholds import HALF, tune


@dataclass(frozen=True)
class ScoredSplit:
    """Labeled rows and the model's logits for them."""

    task: Task
    rows: Array  # row numbers in the raw file, [n]
    labels: Array  # class ids or scores, [n], or zeros and ones, [n, labels]
    logits: Array  # [n, outputs]; all finite
    sentences: Sequence[tuple[str, ...]]
    thresholds: Array | None = None  # from which labels of a multi-label task are predicted, [n, labels]; None: 0.5
    temperatures: Array | float = 1.0  # that the raw logits were divided by, [n], or one for all rows

    @classmethod
    def of(cls, task: Task, table: TokenTable, logits: Array, temperatures: Array | float = 1.0) -> Self:
        """Return the documents of a labeled split with their logits, [documents, outputs], and temperatures."""
        first = table.documents
        return cls(task, table.rows[first], table.labels[first], logits, table.sentences(first), None, temperatures)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def predicted(self) -> Array:
        """Predicted class ids or scores, [n], or zeros and ones, [n, labels]."""
        return predictions(self.task.kind, self.logits, self.thresholds)

    @cached_property
    def probabilities(self) -> Array:
        """The probabilities of all classes, or of each label, [n, outputs]; meaningless for a regression."""
        return probabilities(self.task.kind, self.logits)

    @cached_property
    def confidence(self) -> Array:
        """Probability of the predicted class, [n]; meaningless unless each row has one class."""
        highest: Array = self.probabilities.max(axis=1)
        return highest

    @cached_property
    def words(self) -> Array:
        """Number of words, separated by white space, in all sentences of each row, [n]."""
        return np.array([sum(len(text.split()) for text in texts) for texts in self.sentences])

    def metrics(self) -> dict[str, float]:
        """Return all metrics of the task by name."""
        return all_metrics(self.task, self.labels, self.logits, self.thresholds)

    def interval(self) -> Interval | None:
        """Return the 95 % interval of the task's selection metric, or None if it is undefined."""
        return interval(self.task, self.task.metric, self.labels, self.predicted)

    def uncalibrated(self) -> ScoredSplit:
        """Return the split with raw logits."""
        raw = self.logits.astype(np.float64) * np.reshape(self.temperatures, (-1, 1))
        return replace(self, logits=raw, temperatures=1.0)

    def cross_fitted(self) -> ScoredSplit:
        """Return the split with a temperature and thresholds for each row that were fitted to other rows."""
        kind, raw = self.task.kind, self.uncalibrated().logits
        if kind == "regression":
            return self
        temperatures, limits = np.ones(len(self)), np.full(raw.shape, HALF)
        for others, fold in folds(len(self)):
            labels, logits = self.labels[others], raw[others]
            temperatures[fold] = temperature = fit_temperature(kind, labels, logits)
            if kind == "multilabel":
                limits[fold] = tune(labels, probabilities(kind, logits / temperature))
        found = limits if kind == "multilabel" else None
        return replace(self, logits=raw / temperatures[:, None], thresholds=found, temperatures=temperatures)

    def evidence(self) -> dict[str, Any]:
        """Return what the rows say of the risk of the answers: of a dev split, cross-fit it first."""
        answers = self.predicted if self.task.kind == "regression" else self.probabilities
        return risk.count(self.task.kind, self.labels, answers, self.task.score_range)

    def at_thresholds(self, values: Sequence[float]) -> ScoredSplit:
        """Return the split with the same thresholds for all rows, [labels]; itself if there are none."""
        return replace(self, thresholds=np.tile(np.asarray(values), (len(self), 1))) if len(values) else self

    def at(self, chosen: Array) -> ScoredSplit:
        """Return the part with the rows at these positions, or with the rows that this boolean mask [n] selects."""
        positions = np.arange(len(self))[chosen]
        sentences = [self.sentences[position] for position in positions]
        limits = None if self.thresholds is None else self.thresholds[chosen]
        temperatures = np.broadcast_to(self.temperatures, len(self))[chosen]
        rows, labels, logits = self.rows[chosen], self.labels[chosen], self.logits[chosen]
        return ScoredSplit(self.task, rows, labels, logits, sentences, limits, temperatures)
