"""The intervals against published values and against scikit-learn, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from include.glue import TASKS, Task
from tasks.scoring.intervals import correlations, f1_of, f1_of_sets, interval, matthews_of, of_share
from tasks.scoring.metrics import multilabel_metrics, pearson, spearman

SST2, COLA, STSB, MNLI = TASKS["SST-2"], TASKS["CoLA"], TASKS["STS-B"], TASKS["MNLI"]
RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("right", "rows", "low", "high"),
    # Newcombe (1998), Statistics in Medicine 17, table I, method 3 (Wilson without continuity correction).
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_published(right: int, rows: int, low: float, high: float) -> None:
    assert of_share(right, rows) == pytest.approx((low, high), abs=5e-5)


def test_accuracy_takes_wilson() -> None:
    labels = np.array([0] * 20)
    assert interval(SST2, "accuracy", labels, np.array([1] * 20)) == pytest.approx((0.0, 0.1611), abs=5e-5)


@pytest.mark.parametrize("task", [COLA, MNLI], ids=lambda task: task.name)
def test_formulas_agree_with_scikit_learn(task: Task) -> None:
    classes = range(task.outputs)
    for rows in (4, 7, 300):
        labels, predicted = RANDOM.integers(task.outputs, size=(2, rows))
        matrix = sk.confusion_matrix(labels, predicted, labels=classes)[None].astype(float)
        average = "binary" if task.outputs == 2 else "macro"
        assert f1_of(matrix)[0] == pytest.approx(sk.f1_score(labels, predicted, average=average, zero_division=0))
        assert matthews_of(matrix)[0] == pytest.approx(sk.matthews_corrcoef(labels, predicted))


def test_matthews_of_one_class_is_zero() -> None:
    assert matthews_of(np.array([[[0.0, 3.0], [0.0, 9.0]]])).tolist() == [0.0]


def test_bootstrap_of_matthews_has_the_width_of_its_error() -> None:
    """A balanced matrix has the Matthews correlation 2p - 1, whose standard error is 2 sqrt(p (1 - p) / n)."""
    labels = np.repeat([0, 1], 500)
    predicted = np.where(np.arange(1000) % 10 == 0, 1 - labels, labels)
    found = interval(COLA, "matthews", labels, predicted)
    assert found is not None
    low, high = found
    assert (low + high) / 2 == pytest.approx(0.8, abs=0.005)
    assert high - low == pytest.approx(2 * 1.96 * 2 * np.sqrt(0.9 * 0.1 / 1000), rel=0.1)


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_bootstrap_of_a_correlation_is_near_fishers(metric: str) -> None:
    labels = RANDOM.normal(size=800)
    scores = labels + RANDOM.normal(size=800)
    value = getattr(stats, f"{metric}r")(labels, scores).statistic
    fisher = np.tanh(np.arctanh(value) + np.array([-1.96, 1.96]) / np.sqrt(800 - 3))
    assert interval(STSB, metric, labels, scores) == pytest.approx(tuple(fisher), abs=0.015)


def test_the_same_every_time() -> None:
    labels, predicted = RANDOM.integers(2, size=(2, 50))
    assert interval(COLA, "f1", labels, predicted) == interval(COLA, "f1", labels, predicted)


@pytest.mark.parametrize("scores", [[2.0, 2.0, 2.0], [1.0, np.nan, 2.0]], ids=["constant", "NaN"])
def test_undefined_has_no_interval(scores: list[float]) -> None:
    assert interval(STSB, "pearson", np.array([1.0, 2.0, 3.0]), np.array(scores)) is None


def test_no_rows_no_interval() -> None:
    assert interval(SST2, "accuracy", np.empty(0), np.empty(0)) is None


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_correlations_are_those_of_the_metrics(metric: str) -> None:
    random = np.random.default_rng(0)
    labels, scores = random.integers(0, 6, size=(20, 30)).astype(float), random.normal(size=(20, 30))
    labels[3], scores[5] = 2.0, 1.5
    one = {"pearson": pearson, "spearman": spearman}[metric]
    expected = [one(label, score) for label, score in zip(labels, scores, strict=True)]
    np.testing.assert_allclose(correlations(labels, scores, metric), expected, atol=1e-12)


def test_the_bootstrap_of_several_labels_is_that_of_rows() -> None:
    random = np.random.default_rng(0)
    labels = (random.random((300, 3)) < (0.5, 0.3, 0.1)).astype(int)
    predicted = np.where(random.random((300, 3)) < 0.2, 1 - labels, labels)
    draws = []
    for _ in range(300):
        rows = random.integers(300, size=300)
        draws.append(f1_of_sets(np.ones((1, 300)), labels[rows], predicted[rows], "f1_macro")[0])
    found = interval(TASKS["multi-label"], "f1_macro", labels, predicted)
    assert found == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=0.02)


def test_f1_of_several_labels_agrees_with_the_metrics() -> None:
    labels, predicted = RANDOM.integers(2, size=(2, 30, 4))
    labels[:, 3] = predicted[:, 3] = 0
    for metric in ("f1_micro", "f1_macro"):
        found = f1_of_sets(np.ones((1, 30)), labels, predicted, metric)
        assert found == pytest.approx(multilabel_metrics(labels, predicted)[metric])
