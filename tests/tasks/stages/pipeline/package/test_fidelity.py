"""When a form counts as equal to PyTorch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from include.glue import TASKS
from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.package.measuring import compare
from tests.tasks.stages.pipeline.package.packages import MOVIES, STSB

RANDOM = np.random.default_rng(1)
LABELS = RANDOM.integers(0, 2, 1000)
LOGITS = np.stack([1.0 - 2 * LABELS, 2.0 * LABELS - 1], axis=1) * 2
SCORES = RANDOM.uniform(0.5, 4.5, 1000)


def classes(logits: np.ndarray) -> ScoredSplit:
    return ScoredSplit(MOVIES.task, np.arange(1000), LABELS, logits, ())


def scores(values: np.ndarray) -> ScoredSplit:
    return ScoredSplit(STSB.task, np.arange(1000), SCORES, values[:, None], ())


def with_flipped(rows: int) -> np.ndarray:
    logits = LOGITS * 1e-3  # so that a flip changes no probability much
    logits[:rows] *= -1
    return logits


@pytest.mark.parametrize(
    ("form", "reference", "reason"),
    [
        (LOGITS + 1e-3, LOGITS, ""),
        (with_flipped(2), with_flipped(0), ""),
        (with_flipped(3), with_flipped(0), "agree on 0.9970 of the rows"),
        (np.where(np.arange(1000)[:, None] == 7, LOGITS * 0.8, LOGITS), LOGITS, "an answer changes by 0.0"),
        (LOGITS * np.nan, LOGITS, "an answer changes by nan"),
    ],
    ids=["noise", "two of a thousand", "three of a thousand", "one probability", "not a number"],
)
def test_labels_and_probabilities_must_stay(form: np.ndarray, reference: np.ndarray, reason: str) -> None:
    reasons = "; ".join(compare(classes(form), classes(reference)).reasons())
    assert reason in reasons and bool(reasons) == bool(reason)


@pytest.mark.parametrize("score_range", [None, (0.0, 5.0)], ids=["labels", "labels, and a range that has no meaning"])
def test_a_row_agrees_if_all_its_labels_do(score_range: tuple[float, float] | None) -> None:
    reference = np.where(RANDOM.random((1000, 3)) < 0.5, 1e-3, -1e-3)
    form = reference.copy()
    form[:3, 2] *= -1
    names = ("a", "b", "c")
    task = dataclasses.replace(TASKS["multi-label"], labels=names, label_names=names, score_range=score_range)
    splits = [ScoredSplit(task, np.arange(1000), (reference > 0).astype(int), one, ()) for one in (form, reference)]
    assert compare(*splits).agreement == 0.997


def test_scores_are_compared_in_the_range_of_the_task() -> None:
    assert compare(scores(SCORES + 0.024), scores(SCORES)).reasons() == []
    found = compare(scores(SCORES + 0.026), scores(SCORES))  # of a range of 5
    assert found.agreement == 0 and found.largest_change == pytest.approx(0.0052)
    one = SCORES.copy()
    one[3] += 0.11
    assert compare(scores(one), scores(SCORES)).reasons() == ["an answer changes by 0.0220: more than 0.02"]


def test_a_loss_of_the_metric_is_a_reason_and_a_gain_is_not() -> None:
    reference = with_flipped(3)
    assert compare(classes(with_flipped(1)), classes(reference)).metric_loss == pytest.approx(-0.002)
    assert "the metric falls by 0.0030: more than 0.002" in compare(classes(reference), classes(LOGITS)).reasons()
