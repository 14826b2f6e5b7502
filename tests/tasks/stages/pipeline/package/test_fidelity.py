"""When a form counts as equal to PyTorch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from include.fields.results import Packaging
from include.glue import TASKS
from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.package.measuring import compare
from tests.tasks.stages.pipeline.package.packages import MOVIES, STSB

LIMITS = Packaging()
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


def with_changed(rows: int, factor: float) -> np.ndarray:
    return np.where(np.arange(1000)[:, None] < rows, LOGITS * factor, LOGITS)


@pytest.mark.parametrize(
    ("form", "reference", "reason"),
    [
        (LOGITS + 1e-3, LOGITS, ""),
        (with_flipped(2), with_flipped(0), ""),
        (with_flipped(3), with_flipped(0), "agree on 0.9970 of the rows: less than packaging.min_agreement = 0.998"),
        (with_changed(1, 0.1), LOGITS, ""),
        (with_changed(3, 0.1), LOGITS, "99.9 % of the answers change by up to 0.3833: more than packaging.max_tail_"),
        (LOGITS * 0.9, LOGITS, "change by 0.0086 on average: more than packaging.max_mean_change = 0.005"),
        (LOGITS * np.nan, LOGITS, "the answers change by nan on average"),
    ],
    ids=["noise", "two labels", "three labels", "one row by much", "three rows", "all rows by little", "not a number"],
)
def test_labels_and_probabilities_must_stay(form: np.ndarray, reference: np.ndarray, reason: str) -> None:
    reasons = "; ".join(compare(classes(form), classes(reference)).reasons(LIMITS))
    assert reason in reasons and bool(reasons) == bool(reason)


def test_the_limits_are_those_of_the_experiment() -> None:
    found = compare(classes(with_flipped(3)), classes(with_flipped(0)))
    assert found.reasons(Packaging(min_agreement=0.997, max_metric_loss=0.003)) == []
    found = compare(classes(LOGITS + RANDOM.normal(0, 0.01, (1000, 2))), classes(LOGITS))
    assert found.reasons(LIMITS) == []
    assert len(found.reasons(Packaging(max_mean_change=1e-4, max_tail_change=5e-4))) == 2


def test_of_many_labels_the_one_that_changes_most_counts() -> None:
    names = tuple(f"label {number}" for number in range(100))
    task = dataclasses.replace(TASKS["multi-label"], labels=names, label_names=names)
    logits = np.full((1000, 100), 2.0)
    one = logits.copy()
    one[:, 7] = 1.9
    splits = [ScoredSplit(task, np.arange(1000), np.ones((1000, 100), int), each, ()) for each in (one, logits)]
    found = compare(*splits)
    assert found.mean_change == pytest.approx(found.largest_change) == pytest.approx(0.0109, abs=1e-4)


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
    assert compare(scores(SCORES + 0.024), scores(SCORES)).reasons(LIMITS) == []
    found = compare(scores(SCORES + 0.026), scores(SCORES))  # of a range of 5
    assert found.agreement == 1
    assert (found.mean_change, found.tail_change, found.largest_change) == pytest.approx((0.0052,) * 3)
    (reason,) = found.reasons(LIMITS)
    assert reason == "the answers change by 0.0052 on average: more than packaging.max_mean_change = 0.005"
    some = SCORES.copy()
    some[3] += 1
    assert compare(scores(some), scores(SCORES)).reasons(LIMITS) == []
    some[4:6] += 0.3
    found = compare(scores(some), scores(SCORES))
    assert found.agreement == 0.997 and len(found.reasons(LIMITS)) == 2
    assert len(compare(scores(SCORES * np.nan), scores(SCORES)).reasons(LIMITS)) >= 3


def test_a_loss_of_the_metric_is_a_reason_and_a_gain_is_not() -> None:
    reference = with_flipped(3)
    assert compare(classes(with_flipped(1)), classes(reference)).metric_loss == pytest.approx(-0.002)
    reason = "the metric falls by 0.0030: more than packaging.max_metric_loss = 0.002"
    assert reason in compare(classes(reference), classes(LOGITS)).reasons(LIMITS)
