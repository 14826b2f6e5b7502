"""The metrics against values counted by hand, and what they say where they are undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics as sk

from include.glue import TASKS, Task
from tasks.scoring.metrics import NAMES, all_metrics, as_json
from tasks.scoring.predictions import Array, predictions

SST2, COLA, STSB, MNLI = TASKS["SST-2"], TASKS["CoLA"], TASKS["STS-B"], TASKS["MNLI"]


def logits_of(predicted: list[int], classes: int = 2) -> Array:
    """Logits whose largest stands at the class."""
    return np.eye(classes)[predicted]


def test_two_classes_by_hand() -> None:
    labels = np.array([1, 1, 1, 0, 0, 0, 0, 0])
    logits = logits_of([1, 1, 0, 1, 0, 0, 0, 0])  # 2 true positives, 1 missed, 1 false alarm, 4 true negatives
    assert all_metrics(SST2, labels, logits) == pytest.approx(
        {
            "accuracy": 6 / 8,
            "precision": 2 / 3,
            "recall": 2 / 3,
            "f1": 2 / 3,
            "matthews": (2 * 4 - 1 * 1) / math.sqrt(3 * 3 * 5 * 5),
        }
    )


def test_beyond_two_classes_the_mean_of_all() -> None:
    labels = np.array([0, 0, 1, 1, 2, 2])
    found = all_metrics(MNLI, labels, logits_of([0, 0, 1, 2, 2, 2], 3))
    assert found["recall"] == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert found["precision"] == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert found["f1"] == pytest.approx((1 + 2 / 3 + 4 / 5) / 3)


def test_regression_by_hand() -> None:
    labels, scores = np.array([0.0, 1.0, 2.0, 3.0]), np.array([[0.0], [2.0], [1.0], [3.0]])
    found = all_metrics(STSB, labels, scores)
    assert found == pytest.approx(
        {"pearson": 0.8, "spearman": 0.8, "mse": 0.5, "rmse": math.sqrt(0.5), "mae": 0.5, "r2": 1 - 2 / 5}
    )


def test_agrees_with_scikit_learn_on_random_rows() -> None:
    random = np.random.default_rng(3)
    labels, logits = random.integers(3, size=500), random.normal(size=(500, 3))
    found = all_metrics(MNLI, labels, logits)
    assert found["f1"] == pytest.approx(sk.f1_score(labels, logits.argmax(1), average="macro"))
    assert found["matthews"] == pytest.approx(sk.matthews_corrcoef(labels, logits.argmax(1)))


@pytest.mark.parametrize(
    ("task", "metric"), [(SST2, "accuracy"), (COLA, "matthews"), (TASKS["MRPC"], "f1")], ids=lambda value: str(value)
)
def test_main_metric_is_the_tasks(task: Task, metric: str) -> None:
    assert task.metric == metric and metric in NAMES[task.kind]


def test_one_class_only_is_worth_nothing() -> None:
    found = all_metrics(COLA, np.array([1, 1, 0, 1]), logits_of([1, 1, 1, 1]))
    assert found["matthews"] == 0
    assert all_metrics(COLA, np.array([1, 1, 0, 1]), logits_of([0, 0, 0, 0]))["f1"] == 0


def test_constant_scores_have_no_correlation() -> None:
    found = all_metrics(STSB, np.array([1.0, 2.0, 3.0]), np.full((3, 1), 2.5))
    assert math.isnan(found["pearson"])
    assert math.isnan(found["spearman"])
    assert found["mse"] == pytest.approx((1.5**2 + 0.5**2 + 0.5**2) / 3)
    assert found["rmse"] == pytest.approx(math.sqrt(found["mse"]))
    assert found["mae"] == pytest.approx(2.5 / 3)
    assert as_json(found)["pearson"] is None


def test_constant_labels_have_no_correlation_and_no_r2() -> None:
    found = all_metrics(STSB, np.full(3, 2.0), np.array([[1.0], [2.0], [3.0]]))
    assert all(math.isnan(found[name]) for name in ("pearson", "spearman", "r2"))


@pytest.mark.parametrize("task", [SST2, STSB], ids=lambda task: task.name)
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_logit_that_is_not_finite_leaves_no_metric(task: Task, broken: float) -> None:
    logits = np.ones((3, task.outputs))
    logits[1, 0] = broken
    assert all(math.isnan(value) for value in all_metrics(task, np.array([0, 1, 0]), logits).values())


@pytest.mark.parametrize("task", [SST2, STSB], ids=lambda task: task.name)
def test_no_rows_no_metric(task: Task) -> None:
    found = all_metrics(task, np.empty(0), np.empty((0, task.outputs)))
    assert tuple(found) == NAMES[task.kind]
    assert all(math.isnan(value) for value in found.values())


def test_predictions_are_class_ids_or_scores() -> None:
    assert predictions("classification", np.array([[0.1, 0.3], [2.0, 1.0]])).tolist() == [1, 0]
    assert predictions("regression", np.array([[4.25], [-1.0]], dtype=np.float32)).tolist() == [4.25, -1.0]


def test_no_positive_row_leaves_the_positive_class_at_zero() -> None:
    assert all_metrics(SST2, np.zeros(4, dtype=int), logits_of([0, 0, 0, 0]))["recall"] == 0


def test_several_labels_by_hand() -> None:
    labels = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]])
    logits = np.array([[1, -1, -1], [1, -1, -1], [-1, -1, -1], [1, 1, -1]])
    assert all_metrics(TASKS["multi-label"], labels, logits) == pytest.approx(
        {
            "f1_micro": 2 * 3 / (2 * 3 + 1 + 1),  # 3 right, 1 wrongly, 1 missed
            "f1_macro": (0.8 + 2 / 3 + 0) / 3,
            "subset_accuracy": 2 / 4,
            "hamming_loss": 2 / 12,
        }
    )
