"""How far some answers are from others to the same rows: what package judges a form by, and the service a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from include.fields.results import Packaging
from tasks.inference.packaged_model import Array

#: The largest of N changes grows with N, so it says nothing of a form. This percentile of them does.
TAIL = 99.9


@dataclass(frozen=True)
class Changes:
    """The changes of the answers: of a row's probabilities the largest change, of scores shares of the task's range.

    Attributes:
        tail_change: The 99.9th percentile. Of less than a thousand rows it is nearly the largest change.
    """

    mean_change: float
    tail_change: float
    largest_change: float

    @classmethod
    def of(cls, answers: Array, expected: Array) -> Self:
        """Compare answers, [rows, labels or 1]."""
        rows = np.abs(answers - expected).max(axis=1)
        return cls(float(rows.mean()), float(np.percentile(rows, TAIL)), float(rows.max()))

    def reasons(self, limits: Packaging) -> list[str]:
        """Return the limits that the changes exceed, in words. A value that is not a number exceeds every limit."""
        mean, tail = limits.max_mean_change, limits.max_tail_change
        by, up_to = f"{self.mean_change:.4f} on average", f"{self.tail_change:.4f}"
        checks = {
            f"the answers change by {by}: more than packaging.max_mean_change = {mean:g}": self.mean_change <= mean,
            f"{TAIL} % of the answers change by up to {up_to}: more than packaging.max_tail_change = {tail:g}": (
                self.tail_change <= tail
            ),
        }
        return [reason for reason, holds in checks.items() if not holds]
