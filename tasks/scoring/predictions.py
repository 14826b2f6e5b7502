"""Predictions from logits, also in readable form: class ids and names, the probability of each class, a CSV file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from scipy.special import expit, softmax

from include.answers import LABEL, LABEL_SET, PREDICTION, PROBABILITY, probability_columns
from include.glue import Kind, Task
from tasks.sources.values import cells, is_text

Array = npt.NDArray[Any]
Thresholds = Array | Sequence[float] | None

#: What a spreadsheet takes for the beginning of a formula, also as characters of full width, and what replaces it.
_FORMULA = ("^([=+@\\t\\r\\n\uff1d\uff0b\uff0d\uff20-])", r"'\1")


def predictions(kind: Kind, logits: Array, thresholds: Thresholds = ()) -> Array:
    """Return class ids (int64) or scores (float64), [n], or zeros and ones (int64), [n, labels], from [n, outputs].

    Labels of a multi-label task are predicted from the probabilities `thresholds`, [labels] or [n, labels], or 0.5.
    """
    if kind == "regression":
        return logits[:, 0].astype(np.float64)
    if kind == "classification":
        classes: Array = logits.argmax(axis=1)
        return classes
    if thresholds is None or not len(thresholds):
        return (logits >= 0).astype(np.int64)
    return (probabilities(kind, logits) >= np.asarray(thresholds)).astype(np.int64)


def probabilities(kind: Kind, logits: Array) -> Array:
    """Return the probabilities of all classes, or of each label of a multi-label task, float64 [n, outputs]."""
    logits = logits.astype(np.float64)
    found: Array = expit(logits) if kind == "multilabel" else softmax(logits, axis=1)
    return found


def answer_columns(kind: Kind, names: Sequence[str], predicted: Array, probabilities: Array | None) -> dict[str, Any]:
    """Return the columns of a table of predictions, as lists of n values by name.

    They are the prediction and, for a classification, its class name, its probability, and the probability of each
    class. The prediction of a multi-label task is a list of names; the probability of each label follows. `predicted`
    and `probabilities` are what `predict` returns.
    """
    if probabilities is None:
        return {PREDICTION: predicted}
    every = {column: probabilities[:, at] for at, column in enumerate(probability_columns(names))}
    if kind == "multilabel":
        return {PREDICTION: label_sets(names, predicted), **every}
    probability = probabilities[np.arange(len(predicted)), predicted]
    return {PREDICTION: predicted, LABEL: class_names(names, predicted), PROBABILITY: probability, **every}


def predict(kind: Kind, logits: Array, thresholds: Thresholds = ()) -> tuple[Array, Array | None]:
    """Return `predictions` and the probabilities of all labels, [n, labels], which are None for scores."""
    chances = None if kind == "regression" else probabilities(kind, logits)
    return predictions(kind, logits, thresholds), chances


def distribution(task: Task, logits: Array) -> dict[str, dict[str, float]]:
    """Return the share of rows that each label is predicted for, or mean and deviation of scores, if all are finite."""
    if not len(logits) or not np.isfinite(logits).all():
        return {}
    predicted = predictions(task.kind, logits)
    if task.kind == "regression":
        return {"predicted": {"mean": round(float(predicted.mean()), 4), "std": round(float(predicted.std()), 4)}}
    counts = predicted.sum(axis=0) if task.kind == "multilabel" else np.bincount(predicted, minlength=task.outputs)
    return {"shares": dict(zip(task.label_names, (counts / len(predicted)).round(4).tolist(), strict=True))}


def class_names(names: Sequence[str], ids: Array) -> pa.Array:
    """Return the names of the classes with these ids, [n]."""
    return pa.array(names, pa.string()).take(pa.array(ids, pa.int64()))


def label_names(task: Task, labels: Array) -> Any:
    """Return the names of the labels, [n]: one per row, or lists for a multi-label task. Scores are unchanged."""
    match task.kind:
        case "classification":
            return class_names(task.label_names, labels)
        case "multilabel":
            return label_sets(task.label_names, labels)
        case "regression":
            return labels


def label_sets(names: Sequence[str], chosen: Array) -> pa.Array:
    """Return the names of the labels of each row as a column of lists, [n], given zeros and ones, [n, labels]."""
    every = np.array(names)
    return pa.array([every[row == 1].tolist() for row in chosen], pa.list_(pa.string()))


def write_csv(table: pa.Table, file: Path, separator: str, escape: bool = False) -> None:
    """Write `sheet` of a table as UTF-8 CSV with a header. All texts are quoted, so they may contain line ends."""
    csv.write_csv(sheet(table, separator, escape), file)


def sheet(table: pa.Table, separator: str, escape: bool = False) -> pa.Table:
    """Return a table for spreadsheets: sets of labels and all else that CSV does not hold exactly become texts.

    With `escape`, an apostrophe stands before what looks like a formula.
    """
    for place, field in enumerate(table.schema):
        column = table.column(place)
        is_set = field.name in (PREDICTION, LABEL_SET, "label") and field.type == pa.list_(pa.string())
        column = pc.binary_join(column, separator) if is_set else cells(column)
        if escape and is_text(column.type):
            column = pc.replace_substring_regex(column, *_FORMULA)
        table = table.set_column(place, field.name, column)
    return table.rename_columns([re.sub(*_FORMULA, name) for name in table.column_names]) if escape else table
