"""The thresholds of a multi-label model: the lowest probability from which it predicts each label.

Each label's threshold is the one with the best F1 of that label on labeled rows. On the same rows the thresholds look
better than they are, so the model is measured by cross-fitting: the rows are divided at random into FOLDS parts, and
the predictions of each part are made with thresholds that were tuned on the other parts.
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import precision_recall_curve

from tasks.scoring.metrics import f1_of_rates
from tasks.scoring.predictions import Array

FOLDS = 5
HALF = 0.5


def tune(labels: Array, probabilities: Array) -> Array:
    """Return the threshold of each label with its best F1, [labels], given labels and probabilities, [n, labels].

    Of several that are equally good it is the one closest to one half. So is that of a label without rows.
    """
    return np.array([_best(*column) for column in zip(labels.T, probabilities.T, strict=True)])


def cross_fit(labels: Array, probabilities: Array) -> Array:
    """Return thresholds for each row that were tuned on other rows, [n, labels], for arguments like those of `tune`."""
    fold = np.random.default_rng(0).permutation(len(labels)) % FOLDS
    thresholds = np.full(probabilities.shape, HALF)
    for number in np.unique(fold):
        others = fold != number
        thresholds[~others] = tune(labels[others], probabilities[others])
    return thresholds


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
