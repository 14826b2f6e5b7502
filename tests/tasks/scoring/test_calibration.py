"""The temperature against the likelihood, also of rows that have no best one, and the calibration error by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax

from include.glue import Kind
from tasks.scoring.calibration import BINS, fit_temperature, reliability
from tasks.scoring.predictions import Array, probabilities

RANDOM = np.random.default_rng(3)


def drawn(kind: Kind, rows: int, outputs: int, spread: float = 2.0) -> tuple[Array, Array]:
    """Calibrated logits, and labels that were drawn from their probabilities."""
    logits = RANDOM.normal(scale=spread, size=(rows, outputs))
    if kind == "multilabel":
        return (RANDOM.random(logits.shape) < expit(logits)).astype(int), logits
    chances = softmax(logits, axis=1)
    return np.array([RANDOM.choice(outputs, p=row) for row in chances]), logits


def surprise(kind: Kind, labels: Array, logits: Array) -> float:
    """The negative log likelihood of all rows."""
    if kind == "multilabel":
        return -float(log_expit(np.where(labels == 1, logits, -logits)).sum())
    return -float(log_softmax(logits, axis=1)[np.arange(len(labels)), labels].sum())


@pytest.mark.parametrize(("kind", "outputs"), [("classification", 2), ("classification", 5), ("multilabel", 3)])
@pytest.mark.parametrize("scale", [0.2, 1, 6])
def test_the_temperature_that_the_logits_were_multiplied_by_is_found(kind: Kind, outputs: int, scale: float) -> None:
    labels, logits = drawn(kind, 3000, outputs)
    found = fit_temperature(kind, labels, scale * logits)
    assert found == pytest.approx(scale, rel=0.1)
    best = minimize_scalar(
        lambda t: surprise(kind, labels, scale * logits / t) + 1 / t + math.log(t), bounds=(scale / 2, scale * 2)
    )
    assert found == pytest.approx(best.x, rel=1e-4)
    assert found == fit_temperature(kind, labels, scale * logits)


@pytest.mark.parametrize("kind", ["classification", "multilabel"])
@pytest.mark.parametrize(
    ("rows", "right"), [(872, True), (872, False), (1, True), (1, False), (0, True)],
    ids=["all right", "all wrong", "one row", "one wrong row", "no rows"],
)  # fmt: skip
@pytest.mark.parametrize("size", [0.0, 0.01, 1, 30, 1e4])
def test_rows_without_a_best_temperature_of_their_own(kind: Kind, rows: int, right: bool, size: float) -> None:
    """More certainty would fit them ever better, or less; the prior ends that where it is worth a row."""
    truth = np.eye(2)[np.zeros(rows, int)]
    logits = size * (2 * truth - 1) * (1 if right else -1)
    labels = truth.astype(int) if kind == "multilabel" else np.zeros(rows, int)
    found = fit_temperature(kind, labels, logits)
    assert 1e-3 < found < 1e8
    loss = surprise(kind, labels, logits)
    inverse = 1 / found
    assert surprise(kind, labels, logits * inverse) + inverse - math.log(inverse) <= loss + 1 + 1e-9
    assert found == 1 or (found < 1) == (right and size > 0 and rows > 0)


def test_perfect_rows_leave_about_as_much_doubt_as_a_fraction_of_an_error() -> None:
    labels, logits = np.arange(872) % 2, 2 * np.eye(2)[np.arange(872) % 2]
    temperature = fit_temperature("classification", labels, logits)
    doubt = 872 * (1 - softmax(logits / temperature, axis=1).max(axis=1).mean())
    assert 0.05 < doubt < 1


def by_right_label(labels: list[int], right: list[float]) -> tuple[Array, Array]:
    """Labels of two classes, and the probabilities [n, 2] of which the right label has these."""
    share = np.array(right)[:, None]
    return np.array(labels), np.where(np.eye(2)[labels] == 1, share, 1 - share)


def test_calibration_by_hand() -> None:
    found = reliability("classification", *by_right_label([0, 1, 0, 1], [0.95, 0.95, 0.05, 0.7]))
    # three rows of confidence .95, two of them right; one of .7, right
    assert [one["rows"] for one in found["bins"]] == [1, 3]
    assert found["bins"][1]["accuracy"] == pytest.approx(2 / 3)
    assert found["ece"] == pytest.approx((3 * abs(2 / 3 - 0.95) + 1 * abs(1 - 0.7)) / 4)


def test_the_decisions_of_several_labels_by_hand() -> None:
    labels, chances = np.array([[1, 0], [0, 0]]), np.array([[0.9, 0.1], [0.9, 0.3]])
    found = reliability("multilabel", labels, chances)
    # three of confidence .9, two of them right; one of .7, right
    assert [(one["rows"], one["accuracy"]) for one in found["bins"]] == [(1, 1.0), (3, pytest.approx(2 / 3))]
    assert found["ece"] == pytest.approx((3 * abs(2 / 3 - 0.9) + 1 * abs(1 - 0.7)) / 4)


def test_a_certain_model_falls_into_the_last_bin() -> None:
    found = reliability("classification", np.array([1, 0]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert (found["ece"], found["bins"][0]["high"], found["interval"]) == (0, 1, (0, 0))


@pytest.mark.parametrize(("scale", "least"), [(1, 0.85), (1.3, 0.85), (2, 0.85)])
def test_the_interval_contains_the_error_of_all_rows(scale: float, least: float) -> None:
    """Of calibrated models as well, whose error is 0, and that of any sample of rows is above 0."""
    labels, logits = drawn("classification", 100_000, 2)
    chances = probabilities("classification", scale * logits)
    confidence, honest = chances.max(1), softmax(logits, axis=1).max(1)
    place = np.searchsorted(np.linspace(0, 1, BINS + 1), confidence) - 1
    error = np.abs(np.bincount(place, honest - confidence, BINS)).sum() / len(labels)
    within = []
    for _ in range(40):
        rows = RANDOM.integers(len(labels), size=300)
        low, high = reliability("classification", labels[rows], chances[rows])["interval"]
        within.append(low <= error <= high)
    assert np.mean(within) >= least
