"""A split with logits: one row for each document, and what cross-fitting keeps honest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit
from sklearn.metrics import f1_score

from include.glue import TASKS
from tasks.encoder.batching import TokenTable
from tasks.scoring.calibration import fit_temperature
from tasks.scoring.folds import FOLDS
from tasks.scoring.predictions import Array
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.thresholds import tune
from tests.tasks.encoder.samples import stories, tokenizer, write_split

RANDOM = np.random.default_rng(7)


def of(task: str, labels: Array, logits: Array, temperatures: Array | float = 1.0) -> ScoredSplit:
    """Rows of a task, without texts."""
    return ScoredSplit(TASKS[task], np.arange(len(labels)), labels, logits, [()] * len(labels), None, temperatures)


def fitted_to_others(split: ScoredSplit) -> tuple[Array, Array]:
    """The temperature and the thresholds of each row after cross-fitting."""
    found = split.cross_fitted()
    assert found.thresholds is not None
    return np.asarray(found.temperatures), found.thresholds


def test_a_document_of_several_windows_is_one_row(tmp_path: Path) -> None:
    words = tokenizer()
    words.enable_truncation(12, stride=2)
    texts, labels = stories(30)
    table = TokenTable.open(write_split(tmp_path / "dev", texts, labels, words=words, stride=2))
    assert len(table) > 2 * len(texts)
    logits = np.random.default_rng(1).standard_normal((len(texts), 2))
    found = ScoredSplit.of(TASKS["SST-2"], table, logits)
    assert found.rows.tolist() == list(range(len(texts)))
    assert found.labels.tolist() == labels
    assert found.sentences == texts
    assert found.metrics()["accuracy"] == np.mean(logits.argmax(1) == labels)


def test_a_row_does_not_decide_about_its_own_temperature_and_thresholds() -> None:
    labels, logits = RANDOM.integers(2, size=(50, 2)), RANDOM.normal(size=(50, 2))
    temperatures, limits = fitted_to_others(of("multi-label", labels, logits))
    for row in range(50):
        changed, others = labels.copy(), logits.copy()
        changed[row], others[row] = 1 - labels[row], RANDOM.normal(size=2)
        found, thresholds = fitted_to_others(of("multi-label", changed, others))
        assert found[row] == temperatures[row] and (thresholds[row] == limits[row]).all()
    assert len(np.unique(temperatures)) == len(np.unique(limits, axis=0)) == FOLDS


def test_cross_fitting_does_not_flatter_a_model_that_knows_nothing() -> None:
    """A rare label with random probabilities: tuned on the same rows, F1 is above that of always saying yes."""
    flattered, honest, always = [], [], []
    for _ in range(40):
        labels, chances = (RANDOM.random((60, 1)) < 0.1).astype(int), RANDOM.random((60, 1))
        labels[0] = 1
        flattered.append(f1_score(labels, chances >= tune(labels, chances)))
        honest.append(f1_score(labels, of("multi-label", labels, logit(chances)).cross_fitted().predicted))
        always.append(f1_score(labels, np.ones_like(labels)))
    assert np.mean(honest) < np.mean(always) < np.mean(flattered)


@pytest.mark.parametrize("rows", [1, 2])
def test_fewer_rows_than_folds(rows: int) -> None:
    temperatures, limits = fitted_to_others(of("multi-label", np.eye(2, dtype=int)[:rows], 5.0 * np.eye(2)[:rows]))
    assert temperatures.shape == (rows,) and limits.shape == (rows, 2)
    assert rows > 1 or (temperatures.tolist(), limits.tolist()) == ([1.0], [[0.5, 0.5]])


def test_a_calibrated_model_is_cross_fitted_by_its_raw_logits() -> None:
    """The temperature that its model was divided by, which was fitted to all rows, leaves no trace."""
    labels, raw = RANDOM.integers(3, size=90), RANDOM.normal(scale=3, size=(90, 3))
    fitted = fit_temperature("classification", labels, raw)
    model = of("MNLI", labels, raw / fitted, fitted)
    np.testing.assert_allclose(model.uncalibrated().logits, raw)
    found = model.cross_fitted()
    np.testing.assert_allclose(found.logits, of("MNLI", labels, raw).cross_fitted().logits)
    assert found.predicted.tolist() == raw.argmax(1).tolist()
    np.testing.assert_allclose(found.at(np.arange(9)).uncalibrated().logits, raw[:9])


def test_scores_have_no_temperature() -> None:
    scores = of("STS-B", np.array([1.0, 2.0]), np.array([[1.5], [0.0]]))
    assert scores.cross_fitted() is scores
