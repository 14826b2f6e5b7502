"""The thresholds of a multi-label model: the lowest probability from which it predicts each label.

Each label's threshold is the one with the best F1 of that label on labeled rows. On the same rows the thresholds look
better than they are, so the model is measured by cross-fitting (see folds.py).
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import precision_recall_curve

from tasks.scoring.metrics import f1_of_rates
from tasks.scoring.predictions import Array

HALF = 0.5


def tune(labels: Array, probabilities: Array) -> Array:
    """Return the threshold of each label with its best F1, [labels], given labels and probabilities, [n, labels].

    Of several that are equally good it is the one closest to one half. So is that of a label without rows.
    """
    return np.array([_best(*column) for column in zip(labels.T, probabilities.T, strict=True)])


def _best(labels: Array, probabilities: Array) -> float:
    if not labels.any():
        return HALF
    precision, recall, occurring = precision_recall_curve(labels, probabilities)
    precision, recall = precision[:-1], recall[:-1]  # the last point predicts no row
    f1 = f1_of_rates(precision, recall)
    below = np.concatenate([[0.0], occurring[:-1]])
    middles = (below + occurring) / 2
    best = middles[f1 >= f1.max() - 1e-12]
    return float(best[np.argmin(np.abs(best - HALF))])
