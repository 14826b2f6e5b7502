"""Predictions as people want them: class ids and names, the probability of every class, and a CSV to open."""

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
    """The columns that say what was predicted.

    Args:
        task: whose they are.
        predicted: class ids or scores, [n].
        probabilities: of all classes, [n, classes]; None for scores, which have none.
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
    """The names of class ids, [n]."""
    return pa.array(task.label_names, pa.string()).take(pa.array(ids, pa.int64()))


def write_csv(table: pa.Table, file: Path) -> None:
    """Write a CSV file with a header: UTF-8, every text in quotes, so commas and line ends in it do no harm."""
    csv.write_csv(table, file)
