"""The thresholds of labels, against all that there are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from tasks.scoring.thresholds import tune

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
