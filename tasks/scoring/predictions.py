"""Predictions in readable form: class ids and names, the probability of each class, and a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv
from scipy.special import softmax

from include.answers import LABEL, PREDICTION, PROBABILITY, probability_of
from include.glue import Kind
from tasks.scoring.metrics import Array


def answer_columns(names: Sequence[str], predicted: Array, probabilities: Array | None) -> dict[str, Any]:
    """Return the columns of a table of predictions.

    Args:
        names: The names of the classes; empty for a regression.
        predicted: Class ids or scores, [n].
        probabilities: The probabilities of all classes, [n, classes]; None for a regression.

    Returns:
        Column name to values, [n]: the prediction and, for a classification, its class name, its probability, and the
        probability of each class.
    """
    if probabilities is None:
        return {PREDICTION: predicted}
    every = {probability_of(name): probabilities[:, at] for at, name in enumerate(names)}
    return {
        PREDICTION: predicted,
        LABEL: class_names(names, predicted),
        PROBABILITY: probabilities[np.arange(len(predicted)), predicted],
        **every,
    }


def predict(kind: Kind, logits: Array) -> tuple[Array, Array | None]:
    """Turn the logits of a model, [n, outputs], into predictions.

    Returns:
        The most probable classes, [n], and the probabilities of all, float64 [n, classes]; or the scores, float64 [n],
        and None.
    """
    if kind == "regression":
        return logits[:, 0].astype(np.float64), None
    probabilities = softmax(logits.astype(np.float64), axis=1)
    return probabilities.argmax(axis=1), probabilities


def class_names(names: Sequence[str], ids: Array) -> pa.Array:
    """Return the names of the classes with these ids, [n]."""
    return pa.array(names, pa.string()).take(pa.array(ids, pa.int64()))


def write_csv(table: pa.Table, file: Path) -> None:
    """Write a UTF-8 CSV file with a header. All texts are quoted, so they may contain commas and line ends."""
    csv.write_csv(table, file)
