"""The thresholds of labels, against all that there are, and how cross-fitting keeps them honest."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from tasks.scoring.thresholds import FOLDS, cross_fit, tune

RANDOM = np.random.default_rng(7)


def test_no_threshold_has_a_better_f1() -> None:
    labels = RANDOM.integers(2, size=(80, 3))
    probabilities = np.clip(0.2 * labels + 0.8 * RANDOM.random((80, 3)), 0, 1)
    for label, limit in enumerate(tune(labels, probabilities)):
        truth, chances = labels[:, label], probabilities[:, label]
        best = max(f1_score(truth, chances >= other) for other in chances)
        assert f1_score(truth, chances >= limit) == pytest.approx(best)
        assert limit not in chances


def test_between_equally_good_thresholds_that_near_one_half_counts() -> None:
    labels = np.array([[0], [0], [1], [1]])
    assert tune(labels, np.array([[0.1], [0.3], [0.5], [0.9]])) == pytest.approx([0.4])


def test_a_label_without_rows_is_predicted_from_one_half_on() -> None:
    assert tune(np.zeros((5, 2), int), RANDOM.random((5, 2))).tolist() == [0.5, 0.5]


def test_a_row_does_not_decide_about_its_own_threshold() -> None:
    labels, probabilities = RANDOM.integers(2, size=(50, 2)), RANDOM.random((50, 2))
    limits = cross_fit(labels, probabilities)
    for row in range(50):
        changed, others = labels.copy(), probabilities.copy()
        changed[row], others[row] = 1 - labels[row], RANDOM.random(2)
        assert (cross_fit(changed, others)[row] == limits[row]).all()
    assert len(np.unique(limits, axis=0)) == FOLDS


def test_cross_fitting_does_not_flatter_a_model_that_knows_nothing() -> None:
    """A rare label with random probabilities: tuned on the same rows, F1 is above that of always saying yes."""
    flattered, honest, always = [], [], []
    for _ in range(40):
        labels, chances = (RANDOM.random((60, 1)) < 0.1).astype(int), RANDOM.random((60, 1))
        labels[0] = 1
        flattered.append(f1_score(labels, chances >= tune(labels, chances)))
        honest.append(f1_score(labels, chances >= cross_fit(labels, chances)))
        always.append(f1_score(labels, np.ones_like(labels)))
    assert np.mean(honest) < np.mean(always) < np.mean(flattered)


def test_fewer_rows_than_folds() -> None:
    assert cross_fit(np.array([[1, 0], [0, 1]]), np.array([[0.9, 0.1], [0.2, 0.7]])).shape == (2, 2)
