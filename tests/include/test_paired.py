"""The paired statistics against values worked out by hand, and against SciPy and the bootstrap of the reports."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from include.glue import TASKS
from include.paired import bonett_price, mcnemar, of_answers, of_scores
from tasks.scoring.metrics import pearson
from tasks.scoring.paired import compare


@pytest.mark.parametrize(
    ("only_one", "only_other", "p"),
    [
        (0, 0, 1.0),
        (1, 1, 1.0),
        (0, 5, 2 / 2**5),
        (1, 9, 2 * (1 + 10) / 2**10),
        (8, 2, 2 * (1 + 10 + 45) / 2**10),
    ],
)
def test_mcnemar_by_hand(only_one: int, only_other: int, p: float) -> None:
    assert mcnemar(only_one, only_other) == pytest.approx(p)


@pytest.mark.parametrize(("only_one", "only_other"), [(1, 2), (40, 71), (2000, 2100), (0, 5000)])
def test_mcnemar_is_the_binomial_test(only_one: int, only_other: int) -> None:
    expected = stats.binomtest(only_one, only_one + only_other).pvalue
    assert mcnemar(only_one, only_other) == pytest.approx(expected, rel=1e-9)


def test_the_interval_by_hand() -> None:
    # 3 and 9 rows of 98: shares 4/100 and 10/100, difference -0.06, standard error sqrt((0.14 - 0.0036) / 100)
    found = of_answers(3, 9, 98)
    half = 1.959964 * math.sqrt(0.1364 / 100)
    assert found.interval == pytest.approx((-0.06 - half, -0.06 + half), abs=1e-6)
    assert (found.value, found.p) == (-6 / 98, mcnemar(3, 9))
    assert bonett_price(0, 0, 872)[1] == pytest.approx(1.959964 * math.sqrt(2) / 874, abs=1e-6)
    assert bonett_price(0, 1, 1)[0] == -1


def test_no_rows_are_both_worse_and_not_worse() -> None:
    for rows in (1, 2, 5, 30):
        for one in range(rows + 1):
            for other in range(rows + 1 - one):
                low = bonett_price(one, other, rows)[0]
                assert low < (one - other) / rows or low == -1


def test_scores_are_compared_as_by_the_bootstrap() -> None:
    random = np.random.default_rng(2)
    labels = random.uniform(0, 5, 1500)
    one, other = (labels + random.normal(scale=scale, size=1500) for scale in (0.5, 0.55))
    found = of_scores(labels.tolist(), one.tolist(), other.tolist())
    beside = compare(TASKS["STS-B"], labels, one, other)
    assert found is not None and beside.interval is not None
    assert found.value == pytest.approx(pearson(labels, one) - pearson(labels, other))
    width = found.interval[1] - found.interval[0]
    assert found.interval == pytest.approx(beside.interval, abs=0.1 * width)
    assert found.p == pytest.approx(beside.p, abs=0.03)


def test_equal_scores_do_not_differ_and_constant_ones_have_no_correlation() -> None:
    labels, scores = [0.0, 1.0, 5.0], [0.1, 1.2, 3.0]
    found = of_scores(labels, scores, scores)
    assert found is not None and (found.value, found.interval, found.p) == (0, (0, 0), 1)
    for broken in ([0.1] * 3, [0.0, math.inf, 1.0], [0.0, math.nan, 1.0], [0.0, 1e300, 1.0]):
        assert of_scores(labels, scores, broken) is None
    assert of_scores([], [], []) is None
