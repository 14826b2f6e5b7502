"""One predictions file in GLUE's format: the header index<TAB>prediction, then a line for every test row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from include.glue import SUBMISSION_TASKS, Task
from include.stages import BadInput
from tasks.scoring.metrics import Array

HEADER = "index\tprediction"
DECIMALS = 3  # of a score, as the GLUE baselines write it


@dataclass(frozen=True)
class Sheet:
    """What stands in the file.

    Attributes:
        task: whose predictions they are.
        indices: the test rows, [n].
        values: a label as the task's files write it, or a score, for each row.
    """

    task: Task
    indices: Array
    values: list[str]

    def encode(self) -> bytes:
        """The file's bytes."""
        lines = [f"{index}\t{value}" for index, value in zip(self.indices.tolist(), self.values, strict=True)]
        return "\n".join([HEADER, *lines, ""]).encode("utf-8")


def from_predictions(task: Task, test_rows: Array, rows: Array, predicted: Array) -> Sheet:
    """The sheet of a task's predictions.

    Args:
        task: whose they are.
        test_rows: the rows of the test split in order, [n].
        rows: the rows that were predicted, in any order.
        predicted: class ids or scores, one for each of rows.

    Raises BadInput unless every test row has exactly one prediction that the task knows.
    """
    order = np.argsort(rows, kind="stable")
    _same_rows(task, test_rows, rows[order])
    return Sheet(task, test_rows, _values(task, predicted[order]))


def placeholder(task: Task) -> Sheet:
    """A valid file for a task that nobody trained: the last label (the positive one of two) or the middle score."""
    if task.test_rows is None:
        raise ValueError(f"{task.name} has no published test split to stand in for")
    middle = np.full(task.test_rows, sum(task.score_range) / 2 if task.score_range else task.outputs - 1)
    predicted = middle if task.kind == "regression" else middle.astype(np.int64)
    return Sheet(task, np.arange(task.test_rows), _values(task, predicted))


def is_glue(task: Task) -> bool:
    """Whether GLUE takes a file of this task."""
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
    if not np.isfinite(predicted).all():
        raise BadInput(f"{task.name}: a prediction is not a finite number: run the stage train again")
    if task.kind == "regression":
        low, high = task.score_range or (-np.inf, np.inf)
        rounded = predicted.astype(np.float64).clip(low, high).round(DECIMALS) + 0.0  # + 0.0 leaves no "-0.000"
        return [f"{score:.{DECIMALS}f}" for score in rounded]
    if not np.isin(predicted, range(len(task.labels))).all():
        raise BadInput(f"{task.name}: a predicted class is none of its {len(task.labels)}: run the stage predict again")
    return [task.labels[label] for label in predicted.tolist()]
