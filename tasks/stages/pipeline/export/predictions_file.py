"""A predictions file in GLUE's format: the header index<TAB>prediction, followed by one line per test row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from include.glue import SUBMISSION_TASKS, Task
from include.stages import BadInput

Array = npt.NDArray[Any]

HEADER = "index\tprediction"
DECIMALS = 3  # of a score, as in the files of the GLUE baselines


@dataclass(frozen=True)
class PredictionsFile:
    """The content of a predictions file.

    Attributes:
        task: The task.
        indices: The numbers of the test rows, [n].
        values: For each row, a label as written in the task's own files, a cell of labels, or a formatted score; [n].
    """

    task: Task
    indices: Array
    values: list[str]

    def encode(self) -> bytes:
        """Return the file's bytes."""
        lines = [f"{index}\t{value}" for index, value in zip(self.indices.tolist(), self.values, strict=True)]
        return "\n".join([HEADER, *lines, ""]).encode("utf-8")


def from_predictions(task: Task, test_rows: Array, rows: Array, predicted: Array) -> PredictionsFile:
    """Create the file for a task's predictions.

    Args:
        task: The task.
        test_rows: The numbers of the test rows, in order, [n].
        rows: The numbers of the predicted rows, in any order, [n].
        predicted: Class ids, scores, or cells of labels for `rows`, [n].

    Raises:
        BadInput: Unless every test row has exactly one valid prediction.
    """
    order = np.argsort(rows, kind="stable")
    _same_rows(task, test_rows, rows[order])
    return PredictionsFile(task, test_rows, _values(task, predicted[order]))


def placeholder(task: Task) -> PredictionsFile:
    """Create a valid file for a task without a model: all rows get the last label or the middle of the score range.

    Args:
        task: A task with a published test split.

    Raises:
        ValueError: If the size of the task's test split is unknown.
    """
    if task.test_rows is None:
        raise ValueError(f"{task.name} has no published test split, so there is no placeholder for it")
    middle = np.full(task.test_rows, sum(task.score_range) / 2 if task.score_range else task.outputs - 1)
    predicted = middle if task.kind == "regression" else middle.astype(np.int64)
    return PredictionsFile(task, np.arange(task.test_rows), _values(task, predicted))


def is_glue(task: Task) -> bool:
    """Return whether a GLUE submission contains a file for this task."""
    return task.name in SUBMISSION_TASKS


def _same_rows(task: Task, expected: Array, found: Array) -> None:
    for problem, rows in (
        ("is predicted twice", found[1:][found[1:] == found[:-1]]),
        ("has no prediction", np.setdiff1d(expected, found)),
        ("is predicted but not in the test split", np.setdiff1d(found, expected)),
    ):
        if rows.size:
            raise BadInput(f"{task.name}: test row {rows[0]} {problem}: run the stage predict again")


def _values(task: Task, predicted: Array) -> list[str]:
    if task.kind == "multilabel":
        return [str(cell) for cell in predicted]
    if not np.isfinite(predicted).all():
        raise BadInput(f"{task.name}: a prediction is not a finite number: run the stage train again")
    if task.kind == "regression":
        low, high = task.score_range or (-np.inf, np.inf)
        rounded = predicted.astype(np.float64).clip(low, high).round(DECIMALS) + 0.0  # + 0.0 avoids "-0.000"
        return [f"{score:.{DECIMALS}f}" for score in rounded]
    if not np.isin(predicted, range(len(task.labels))).all():
        raise BadInput(
            f"{task.name}: a predicted class is not one of its {len(task.labels)} classes: run the stage predict again"
        )
    return [task.labels[label] for label in predicted.tolist()]
