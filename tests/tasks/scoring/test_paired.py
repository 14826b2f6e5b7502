"""The comparison of two models against values worked out by hand, and what it says of many pairs of models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from include.glue import TASKS
from include.paired import bonett_price
from tasks.scoring.metrics import pearson
from tasks.scoring.paired import Comparison, _widened, compare, compare_seeds, outcome
from tasks.scoring.predictions import Array

SST2, STSB = TASKS["SST-2"], TASKS["STS-B"]
ROWS, MARGIN = 872, 0.02  # of SST-2's dev split, and retraining.margin


def test_a_classifier_by_hand() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    found = compare(SST2, labels, np.array([0, 1, 1, 1, 0]), np.array([1, 0, 0, 1, 0]))
    assert (found.metric, found.rows, found.model, found.champion) == ("accuracy", 5, 0.6, 0.4)
    assert (found.only_model, found.only_champion) == (2, 1)
    assert found.difference == pytest.approx(0.2)
    assert (found.interval, found.p) == (bonett_price(2, 1, 5), 1.0)


def test_many_classes_are_right_or_wrong() -> None:
    found = compare(TASKS["MNLI"], np.array([0, 1, 2]), np.array([0, 2, 1]), np.array([1, 0, 1]))
    assert (found.model, found.champion, found.only_model, found.only_champion) == (1 / 3, 0, 1, 0)


@pytest.mark.parametrize(
    ("difference", "low", "p", "margin", "expected"),
    [
        (-0.03, -0.04, 0.01, 0.02, "worse"),
        (-0.03, -0.06, 0.2, 0.02, "undecided"),  # beyond the margin, and within chance
        (-0.015, -0.03, 0.01, 0.02, "undecided"),  # a certain loss, and perhaps an acceptable one
        (-0.015, -0.019, 0.01, 0.02, "not worse"),  # a certain loss that is accepted
        (-0.02, -0.04, 0.01, 0.02, "undecided"),  # the margin itself is accepted
        (-0.01, -0.02, 0.3, 0.02, "not worse"),
        (0.05, -0.03, 0.2, 0.02, "undecided"),  # ahead, on a handful of rows
        (0.01, 0.001, 0.04, 0.0, "not worse"),
        (0.0, -0.003, 1.0, 0.0, "undecided"),
    ],
)
def test_outcomes(difference: float, low: float, p: float, margin: float, expected: str) -> None:
    found = Comparison("accuracy", 100, 0.9, 0.9 - difference, difference, (low, 2 * difference - low), p)
    assert outcome(found, margin) == expected


@pytest.mark.parametrize(("rows", "expected"), [(ROWS, "not worse"), (50, "undecided")])
def test_equal_predictions_are_not_worse_where_the_rows_can_tell(rows: int, expected: str) -> None:
    labels = np.arange(rows) % 2
    predicted = np.where(np.arange(rows) % 10, labels, 1 - labels)
    assert outcome(compare(SST2, labels, predicted, predicted), MARGIN) == expected


def outcomes(model: float, champion: float, draws: int) -> Array:
    """What is found, over many dev splits, of models with these accuracies that err independently of each other."""
    random, labels = np.random.default_rng(7), np.zeros(ROWS, int)
    both = ((random.random((2, ROWS)) > [[model], [champion]]).astype(int) for _ in range(draws))
    return np.array([outcome(compare(SST2, labels, *pair), MARGIN) for pair in both])


def test_chance_does_not_refuse_an_equal_model() -> None:
    found = outcomes(0.92, 0.92, 2000)
    assert 0 < (found == "worse").mean() < 0.05
    assert (found == "undecided").any()


def test_a_model_five_points_worse_is_found() -> None:
    found = outcomes(0.87, 0.92, 500)
    assert (found == "worse").mean() > 0.85
    assert (found == "not worse").mean() < 0.01


def scores(rows: int, noise: float, seed: int) -> tuple[Array, Array]:
    """Labels from 0 to 5, and scores that are off by so much."""
    labels = np.random.default_rng(1).uniform(0, 5, rows)
    return labels, labels + np.random.default_rng(seed).normal(scale=noise, size=rows)


def test_scores_beside_scores() -> None:
    labels, good = scores(400, 0.5, 2)
    poor = scores(400, 3.0, 3)[1]
    found = compare(STSB, labels, poor, good)
    assert found.difference == pytest.approx(pearson(labels, poor) - pearson(labels, good))
    assert found.interval is not None and found.difference is not None
    assert found.interval[0] < found.difference < found.interval[1] < -0.2
    assert found.p == pytest.approx(2 / 2001) and found.only_model is None
    assert outcome(found, MARGIN) == "worse"
    assert outcome(compare(STSB, labels, good, poor), MARGIN) == "not worse"


def test_equal_scores_are_not_worse_even_without_a_margin() -> None:
    labels, good = scores(60, 0.5, 2)
    found = compare(STSB, labels, good, good)
    assert (found.difference, found.interval, found.p) == (0, (0, 0), 1)
    assert outcome(found, 0) == "not worse"


def test_few_scores_are_undecided() -> None:
    labels, one = scores(12, 1.5, 2)
    assert outcome(compare(STSB, labels, one, scores(12, 1.5, 3)[1]), MARGIN) == "undecided"


def test_scores_that_are_all_equal_are_undecided() -> None:
    labels, good = scores(20, 0.5, 2)
    for found in (compare(STSB, labels, np.full(20, 2.5), good), compare(STSB, labels[:1], good[:1], good[:1])):
        assert found.model is None and found.difference is None
        assert outcome(found, MARGIN) == "undecided"


def test_models_of_several_labels_are_compared_by_the_metric_of_the_task() -> None:
    random, task = np.random.default_rng(3), TASKS["multi-label"]
    labels = (random.random((400, 3)) < (0.5, 0.3, 0.2)).astype(int)
    good, bad = (np.where(random.random((400, 3)) < share, 1 - labels, labels) for share in (0.05, 0.25))
    found = compare(task, labels, good, bad)
    assert found.metric == "f1_micro"
    assert found.model == pytest.approx(f1_score(labels, good, average="micro"))
    assert found.champion == pytest.approx(f1_score(labels, bad, average="micro"))
    assert found.interval is not None and found.difference is not None
    assert 0 < found.interval[0] < found.difference < found.interval[1]
    assert found.only_model is None and outcome(found, MARGIN) == "not worse"
    assert outcome(compare(task, labels, bad, good), MARGIN) == "worse"
    same = compare(task, labels, good, good)
    assert same.interval == (0, 0) and outcome(same, 0) == "not worse"


def test_the_spread_over_few_seeds_is_that_of_students_t() -> None:
    sides = [np.array([0.90, 0.92, 0.94])] * 2
    deviation = np.sqrt(2 * sides[0].var(ddof=1) / 3)
    seeds_alone = _widened(0.1 + deviation * np.array([-1, 1]), 0.1, sides)
    assert seeds_alone[1] - 0.1 == pytest.approx(deviation * stats.t.ppf(0.975, 4) / stats.norm.ppf(0.975))
    mostly_rows = _widened(np.array([-1.0, 1.0]), 0, sides)
    np.testing.assert_allclose(mostly_rows, [-1, 1], rtol=1e-4)


def test_one_label_alone_is_compared_like_a_class() -> None:
    labels = np.ones(50, int)
    found = compare(TASKS["multi-label"], labels, np.arange(50) % 5 // 4, labels)
    assert (found.metric, found.only_model, found.only_champion) == ("accuracy", 0, 40)


def test_settings_are_compared_over_rows_and_seeds() -> None:
    random, task = np.random.default_rng(1), TASKS["SST-2"]
    labels = random.integers(0, 2, 872)

    def models(accuracies: Sequence[float]) -> list[Array]:
        """Models that mostly share their mistakes, as those of one encoder do."""
        hard = np.sort(np.random.default_rng(2).random(872))
        noisy = (hard + random.normal(0, 0.05, 872) for _ in accuracies)
        return [np.where(one > share, 1 - labels, labels) for one, share in zip(noisy, accuracies, strict=True)]

    better = compare_seeds(task, labels, models([0.93, 0.935, 0.925]), models([0.88, 0.885, 0.875]))
    assert better.interval and better.p is not None and better.difference is not None
    assert 0 < better.interval[0] < better.difference < better.interval[1] and better.p < 0.05
    wide = compare_seeds(task, labels, models([0.95, 0.95, 0.89]), models([0.91, 0.93, 0.89]))
    assert wide.interval and wide.interval[0] < 0 < wide.interval[1]  # seeds differ more than settings
    ours, theirs = models([0.93]), models([0.93])
    matthews = compare_seeds(TASKS["CoLA"], labels, ours, theirs)
    assert matthews.metric == "matthews"
    assert matthews.model == pytest.approx(matthews_corrcoef(labels, ours[0]))
    scores = labels + random.normal(0, 1, (4, 872))
    pearson = compare_seeds(TASKS["STS-B"], labels.astype(float), list(scores[:2]), list(scores[2:]))
    assert pearson.model == pytest.approx(np.mean([np.corrcoef(labels, one)[0, 1] for one in scores[:2]]))
    constant = compare_seeds(TASKS["STS-B"], labels.astype(float), [np.ones(872)], [scores[0]])
    assert constant.model is None and constant.interval is None
