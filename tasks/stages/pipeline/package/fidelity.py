"""How far the answers of a form are from those of PyTorch in fp32, on the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from tasks.inference.packaged_forms import LARGEST_CHANGE
from tasks.scoring.metrics import Array
from tasks.scoring.scored import ScoredSplit

#: A form is offered only if at least this share of the rows gets the same answer, no probability changes by more than
#: LARGEST_CHANGE, and the metric falls by no more than METRIC_LOSS.
AGREEMENT, METRIC_LOSS = 0.998, 0.002
#: Scores are measured as shares of the task's range. Two are the same answer if they differ by no more than this.
SAME_SCORE = 0.005


@dataclass(frozen=True)
class Fidelity:
    """How far a form is from the reference.

    Attributes:
        agreement: the share of the rows with the same answer: the same labels, or nearly the same score.
        largest_change: the largest change of a probability, or of a score as a share of the task's range.
        metric: the task's metric of the form.
        metric_loss: by how much that is below the reference's.
    """

    agreement: float
    largest_change: float
    metric: float
    metric_loss: float

    def as_json(self) -> dict[str, float | None]:
        """Return the values by name. Those that are not finite are None."""
        return {name: round(value, 6) if math.isfinite(value) else None for name, value in asdict(self).items()}

    def reasons(self) -> list[str]:
        """Return why the form is not offered; empty if it may be. A value that is not a number is a reason."""
        return list(self._reasons())

    def _reasons(self) -> Iterator[str]:
        if not self.agreement >= AGREEMENT:
            yield f"its answers agree on {self.agreement:.4f} of the rows: less than {AGREEMENT}"
        if not self.largest_change <= LARGEST_CHANGE:
            yield f"an answer changes by {self.largest_change:.4f}: more than {LARGEST_CHANGE}"
        if not self.metric_loss <= METRIC_LOSS:
            yield f"the metric falls by {self.metric_loss:.4f}: more than {METRIC_LOSS}"


def compare(form: ScoredSplit, reference: ScoredSplit) -> Fidelity:
    """Compare a form with the reference, row by row."""
    if form.task.kind == "regression":
        changes = _score_changes(form, reference)
        same, largest = changes <= SAME_SCORE, changes.max()
    else:
        same = (form.predicted == reference.predicted).reshape(len(form), -1).all(axis=1)
        largest = np.abs(form.probabilities - reference.probabilities).max()
    metric, before = (scored.metrics()[scored.task.metric] for scored in (form, reference))
    return Fidelity(float(same.mean()), float(largest), metric, round(before - metric, 9))


def _score_changes(form: ScoredSplit, reference: ScoredSplit) -> Array:
    assert form.task.score_range is not None  # every regression has one
    low, high = form.task.score_range
    changes: Array = np.abs(form.predicted - reference.predicted) / (high - low)
    return changes
