"""The baseline, against every constant model there is."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from include.glue import TASKS
from tasks.scoring.metrics import all_metrics, baseline


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_no_constant_class_is_better(classes: int) -> None:
    names = tuple(map(str, range(classes)))
    task = dataclasses.replace(TASKS["classification"], labels=names, label_names=names)
    labels = np.random.default_rng(classes).choice(
        classes, size=50, p=np.arange(1, classes + 1)[::-1] / sum(range(classes + 1))
    )
    every = [all_metrics(task, labels, np.eye(classes)[np.full(50, answer)]) for answer in range(classes)]
    found = baseline(task, labels)
    assert found == {name: max(one[name] for one in every) for name in ("accuracy", "f1", "matthews")}


def test_no_constant_score_errs_less() -> None:
    labels = np.array([0.0, 0.0, 1.0, 5.0])
    found = baseline(TASKS["STS-B"], labels)
    every = [all_metrics(TASKS["STS-B"], labels, np.full((4, 1), score)) for score in np.linspace(0, 5, 101)]
    assert found["mse"] == pytest.approx(min(one["mse"] for one in every))
    assert (found["pearson"], found["spearman"], found["r2"]) == (0, 0, 0)


def test_equal_scores_and_no_rows() -> None:
    assert baseline(TASKS["STS-B"], np.full(3, 2.0))["r2"] is None
    assert baseline(TASKS["SST-2"], np.zeros(0, int)) == {}


def test_no_constant_set_of_labels_is_better() -> None:
    names = tuple("abcd")
    task = dataclasses.replace(TASKS["multi-label"], labels=names, label_names=names)
    labels = (np.random.default_rng(0).random((40, 4)) < (0.7, 0.5, 0.3, 0.05)).astype(int)
    answers = itertools.product((-1, 1), repeat=4)
    every = [all_metrics(task, labels, np.tile(answer, (40, 1))) for answer in answers]
    best = {name: max(one[name] for one in every) for name in ("f1_micro", "f1_macro", "subset_accuracy")}
    assert baseline(task, labels) == pytest.approx({**best, "hamming_loss": min(one["hamming_loss"] for one in every)})
