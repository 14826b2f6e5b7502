from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from include.glue import TASKS
from tasks.scoring.predictions import distribution


def test_the_distribution_of_predictions() -> None:
    classes = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.5], [0.2, 0.1]])
    assert distribution(TASKS["SST-2"], classes) == {"shares": {"negative": 0.75, "positive": 0.25}}
    several = dataclasses.replace(TASKS["multi-label"], labels=("a", "b", "c"), label_names=("a", "b", "c"))
    labels = np.array([[1.0, -1.0, -2.0], [0.5, 2.0, -0.1]])
    assert distribution(several, labels) == {"shares": {"a": 1.0, "b": 0.5, "c": 0.0}}
    scores = np.array([[1.0], [2.0], [3.0], [4.0]])
    assert distribution(TASKS["STS-B"], scores) == {"predicted": {"mean": 2.5, "std": pytest.approx(1.118, abs=1e-4)}}


@pytest.mark.parametrize("logits", [np.zeros((0, 2)), np.array([[0.1, np.nan]])])
def test_what_predicts_nothing_has_no_distribution(logits: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    assert distribution(TASKS["SST-2"], logits) == {}
