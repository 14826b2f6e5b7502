"""Cross-fitting: what is fitted to labeled rows looks better on them than it is, so each fold gets that of the others.

The rows are divided at random into FOLDS parts, and what is said of each part follows from a fit to the other parts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tasks.scoring.predictions import Array

FOLDS = 5


def folds(rows: int) -> Iterator[tuple[Array, Array]]:
    """Yield for each fold whether a row is to be fitted to, and whether it is in the fold, both bool [rows]."""
    fold = np.random.default_rng(0).permutation(rows) % FOLDS
    for number in np.unique(fold):
        yield fold != number, fold == number
