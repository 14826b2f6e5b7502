"""One predictions file: its bytes, and what it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from include.glue import SUBMISSION_TASKS, TASKS
from include.stages import BadInput
from tasks.stages.pipeline.export.submission import from_predictions, placeholder

SST2, STSB, QNLI = TASKS["SST-2"], TASKS["STS-B"], TASKS["QNLI"]
THREE = np.arange(3)


def test_golden_bytes_of_classes() -> None:
    sheet = from_predictions(SST2, THREE, THREE, np.array([1, 0, 1]))
    assert sheet.encode() == b"index\tprediction\n0\t1\n1\t0\n2\t1\n"


def test_golden_bytes_of_words() -> None:
    sheet = from_predictions(QNLI, THREE, THREE, np.array([1, 0, 0]))
    assert sheet.encode() == b"index\tprediction\n0\tnot_entailment\n1\tentailment\n2\tentailment\n"


def test_golden_bytes_of_scores_clipped_and_rounded() -> None:
    sheet = from_predictions(STSB, np.arange(5), np.arange(5), np.array([5.2, -0.0001, 3.14159, 2.0, 4.9996]))
    assert sheet.encode() == b"index\tprediction\n0\t5.000\n1\t0.000\n2\t3.142\n3\t2.000\n4\t5.000\n"


def test_a_small_negative_score_is_no_negative_zero() -> None:
    task = dataclasses.replace(STSB, score_range=(-1.0, 1.0))
    assert from_predictions(task, np.array([0]), np.array([0]), np.array([-0.0001])).values == ["0.000"]


def test_predictions_come_in_any_order() -> None:
    assert from_predictions(SST2, THREE, np.array([2, 0, 1]), np.array([0, 1, 1])).values == ["1", "1", "0"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 1], "SST-2: test row 2 has no prediction"),
        ([0, 1, 1, 2], "SST-2: test row 1 is predicted twice"),
        ([0, 1, 2, 7], "SST-2: test row 7 is predicted but not in the test split"),
        ([], "SST-2: test row 0 has no prediction"),
    ],
)
def test_every_test_row_once(rows: list[int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        from_predictions(SST2, THREE, np.array(rows, dtype=np.int64), np.zeros(len(rows), dtype=np.int64))


@pytest.mark.parametrize("label", [2, -1])
def test_an_unknown_class_is_refused(label: int) -> None:
    with pytest.raises(BadInput, match="not one of its 2"):
        from_predictions(SST2, THREE, THREE, np.array([0, 1, label]))


def test_a_score_that_is_not_finite_is_refused() -> None:
    with pytest.raises(BadInput, match="not a finite number"):
        from_predictions(STSB, THREE, THREE, np.array([0.0, np.nan, 1.0]))


@pytest.mark.parametrize("name", SUBMISSION_TASKS)
def test_placeholders_fit_the_task(name: str) -> None:
    task = TASKS[name]
    sheet = placeholder(task)
    assert len(sheet.values) == task.test_rows
    assert set(sheet.values) == ({"2.500"} if name == "STS-B" else {task.labels[-1]})


def test_no_placeholder_without_a_published_test_split() -> None:
    with pytest.raises(ValueError, match="movie-reviews has no published test split"):
        placeholder(TASKS["movie-reviews"])


def test_golden_bytes_of_several_labels() -> None:
    task = dataclasses.replace(TASKS["multi-label"], labels=("a", "b"), label_names=("a", "b"))
    cells = np.array(["a|b", "", "b"], dtype=object)
    assert (
        from_predictions(task, THREE, np.array([2, 0, 1]), cells).encode() == b"index\tprediction\n0\t\n1\tb\n2\ta|b\n"
    )
