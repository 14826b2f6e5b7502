"""What a model may answer with a risk: the guarantee holds for most draws of dev, and counts say what columns do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binom

from tasks.scoring.predictions import Array
from tasks.scoring.risk import LEVELS, Guard, binomial_tail, certified, count

NAMES = {"binary": ("no", "yes"), "classes": ("a", "b", "c", "d")}
RANGE = (0.0, 5.0)
DRAWS = 150


def population(what: str, rows: int = 40_000) -> tuple[str, Array, Array]:
    """Return the kind, labels and answers of many rows; the probabilities are true, except for noise in the labels."""
    random = np.random.default_rng(0)
    if what == "scores":
        answers = random.uniform(-0.2, 5.2, rows)
        return "regression", (answers + random.normal(0, 0.4, rows)).clip(*RANGE), answers
    if what == "sets":
        answers = random.beta(0.4, 0.8, (rows, 4))
        return "multilabel", (random.random(answers.shape) < answers).astype(int), answers
    classes = len(NAMES[what])
    answers = softmax(random.normal(0, 3.5, (rows, classes)), axis=1)
    labels = (answers.cumsum(axis=1) < random.random(rows)[:, None]).sum(axis=1).clip(0, classes - 1)
    noisy = random.random(rows) < 0.01
    return "classification", np.where(noisy, random.integers(0, classes, rows), labels), answers


def guard(what: str, kind: str, max_risk: float, evidence: dict[str, Any]) -> Guard:
    return Guard.of(kind, NAMES.get(what, "abcd"), RANGE if kind == "regression" else None, max_risk, evidence)


@pytest.mark.parametrize("what", ["binary", "classes", "sets", "scores"])
def test_the_risk_holds_in_95_of_100_draws_of_dev(what: str) -> None:
    kind, labels, answers = population(what)
    whole = {name: np.asarray(each) for name, each in count(kind, labels, answers, RANGE).items()}
    random, missed, wrong, shares = np.random.default_rng(1), [], [], []
    for _ in range(DRAWS):
        dev = random.integers(0, len(labels), 800)
        found = guard(what, kind, 0.1, count(kind, labels[dev], answers[dev], RANGE))
        missed.append(whole["missed"][np.searchsorted(LEVELS, found.level)] / len(labels))
        if found.least is not None:
            at = np.searchsorted(LEVELS, found.least)
            wrong.append(whole["wrong"][at] / whole["answered"][at])
            shares.append(whole["answered"][at] / len(labels))
    most = binom.ppf(0.975, DRAWS, 0.05)  # how many of as many draws may break a guarantee of 95 %, by chance
    assert np.sum(np.array(missed) > 0.1) <= most and np.mean(missed) > 0.05
    if kind == "classification":  # 11 and 20 % of all rows are wrong
        assert np.sum(np.array(wrong) > 0.1) <= most and np.mean(wrong) > 0.05
        assert len(shares) > 0.95 * DRAWS and np.mean(shares) > {"binary": 0.9, "classes": 0.6}[what]


@pytest.mark.parametrize("what", ["binary", "classes", "sets", "scores"])
def test_the_columns_do_what_was_counted(what: str) -> None:
    kind, labels, answers = population(what, 1500)
    evidence = count(kind, labels, answers, RANGE)
    found = guard(what, kind, 0.1, evidence)
    columns, at = found.columns(answers), int(np.searchsorted(LEVELS, found.level))
    assert found.is_certified and "is certified" in found.says()
    if kind == "regression":
        low, high = np.array(columns["low"]), np.array(columns["high"])
        assert low.min() == 0 and high.max() == 5 and (low <= high).all()
        assert ((labels < low - 1e-9) | (labels > high + 1e-9)).sum() == pytest.approx(evidence["missed"][at], abs=1)
        return
    if "label_set" in columns:
        names = np.array(found.labels)
        truth = [set(names[row == 1]) if kind == "multilabel" else {names[row]} for row in labels]
        missed = [not true <= set(chosen) for true, chosen in zip(truth, columns["label_set"], strict=True)]
        assert sum(missed) == evidence["missed"][at] > 0
    assert ("label_set" in columns) == (what != "binary") and ("abstained" in columns) == (kind == "classification")
    if kind == "classification":
        answered = np.array([reason is None for reason in columns["abstained"]])
        assert answered.mean() == found.answered and 0 < answered.sum() < len(labels)
        assert found.least is not None and (answers.max(axis=1)[answered] >= found.least).all()


def test_as_few_rows_suffice_as_can() -> None:
    for rows, found in ((71, None), (72, 0.0)):
        right = count("classification", np.zeros(rows, int), np.tile([0.9, 0.1], (rows, 1)))
        assert guard("binary", "classification", 0.05, right).least == found


def test_a_reason_shows_a_confidence_that_is_lower() -> None:
    kind, labels, answers = population("binary", 1500)
    found = guard("binary", kind, 0.1, count(kind, labels, answers))
    assert found.least is not None
    below = np.nextafter(found.least, 0)
    (reason,) = found.columns(np.array([[1 - below, below]]))["abstained"]
    shown, least = (float(part) for part in reason.partition(", as")[0].removeprefix("confidence ").split(" is below "))
    assert reason.endswith("as max_risk 0.1 requires") and shown < least == found.least


def test_too_few_rows_certify_nothing_and_say_what_would_do() -> None:
    kind, labels, answers = population("binary", 1500)
    few = count(kind, labels[:100], answers[:100])
    found = guard("binary", kind, 0.05, few)
    assert (found.least, found.answered, found.is_certified) == (None, 0.0, False)
    assert set(found.columns(answers[:3])["abstained"]) == {"no confidence is certified for max_risk 0.05"}
    words = found.says()
    assert "cannot be certified with 100 dev rows, so nothing is answered: have about " in words
    rows, risk = int(words.split("have about ")[1].split()[0].replace(",", "")), float(words.split("max_risk ")[-1])
    more = {name: np.ceil(rows / 100 * np.asarray(each)).astype(int) for name, each in few.items()}
    assert guard("binary", kind, 0.05, more).is_certified and guard("binary", kind, risk, few).is_certified
    always_wrong = {name: few["answered"] if name == "wrong" else each for name, each in few.items()}
    assert "more dev rows like these would not do" in guard("binary", kind, 0.05, always_wrong).says()
    scores = guard("scores", "regression", 0.02, count("regression", labels[:50], labels[:50] + 1.0, RANGE))
    assert scores.columns(np.array([1.0])) == {"low": [0.0], "high": [5.0]} and not scores.is_certified


def test_the_levels_are_tested_in_a_fixed_sequence_with_two_starts() -> None:
    rows = np.array([50, 100, 200, 400])
    assert certified(rows, np.array([0, 0, 0, 0]), 0.05, [100, 200]) == 3
    # The first start fails. The second has half of the 5 %, for which one mistake less is allowed.
    wrong = next(k for k in range(99, 0, -1) if binom.cdf(k, 200, 0.05) <= 0.025)
    assert certified(rows, np.array([50, 100, wrong, 400]), 0.05, [100, 200]) == 2
    assert certified(rows, np.array([50, 100, wrong + 1, 400]), 0.05, [100, 200]) is None
    # What follows a level that fails is not tested, unless it is a start.
    assert certified(rows, np.array([0, 0, 200, 0]), 0.05, [100]) == 1
    assert certified(np.array([0, 0]), np.array([0, 0]), 0.05, [1]) is None


@pytest.mark.parametrize(
    ("mistakes", "rows", "risk"), [(0, 59, 0.05), (7, 300, 0.05), (900, 20_000, 0.05), (5, 5, 0.9)]
)
def test_the_binomial_tail_is_scipys(mistakes: int, rows: int, risk: float) -> None:
    assert binomial_tail(mistakes, rows, risk) == pytest.approx(binom.cdf(mistakes, rows, risk), rel=1e-9)
