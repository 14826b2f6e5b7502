"""Predictions in readable form: class ids and names, the probability of each class, and a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from include.answers import LABEL, PREDICTION, PROBABILITY, probability_of
from include.glue import Task
from tasks.scoring.metrics import Array


def answer_columns(task: Task, predicted: Array, probabilities: Array | None) -> dict[str, Any]:
    """Return the columns of a table of predictions.

    Args:
        task: The task.
        predicted: Class ids or scores, [n].
        probabilities: The probabilities of all classes, [n, classes]; None for a regression.

    Returns:
        Column name to values, [n]: the prediction and, for a classification, its class name, its probability, and the
        probability of each class.
    """
    if probabilities is None:
        return {PREDICTION: predicted}
    every = {probability_of(name): probabilities[:, at] for at, name in enumerate(task.label_names)}
    return {
        PREDICTION: predicted,
        LABEL: class_names(task, predicted),
        PROBABILITY: probabilities[np.arange(len(predicted)), predicted],
        **every,
    }


def class_names(task: Task, ids: Array) -> pa.Array:
    """Return the names of the classes with these ids, [n]."""
    return pa.array(task.label_names, pa.string()).take(pa.array(ids, pa.int64()))


def write_csv(table: pa.Table, file: Path) -> None:
    """Write a UTF-8 CSV file with a header. All texts are quoted, so they may contain commas and line ends."""
    csv.write_csv(table, file)
