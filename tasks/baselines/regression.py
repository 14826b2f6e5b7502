"""Logistic and linear regression by Spark's MLlib."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.linalg import VectorUDT
from pyspark.ml.regression import LinearRegression
from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, StructField, StructType
from scipy.sparse import csr_matrix

from include.glue import Task
from include.stages import BadInput
from tasks.baselines.rows import OnePartition
from tasks.encoder.batching import Array

_STEPS = 100  # of L-BFGS, at most
#: Features that vary less have a weight of 0. MLlib divides by the standard deviation, and its search for the minimum
#: fails at once where that is next to nothing: some outputs of all-MiniLM-L6-v2 are 1e-32 for every text.
_LEAST_DEVIATION = 1e-6


class Linear(NamedTuple):
    """A linear layer: weights, float64 [outputs, features], and biases, float64 [outputs]."""

    weights: Array
    biases: Array


def fit(to_spark: OnePartition, task: Task, features: csr_matrix, targets: Array, weights: Array) -> Linear:
    """Fit a softmax over the classes, a logistic regression for each label, or a linear regression.

    Half the squared weights count as much as the loss of a single row, which is the default of scikit-learn. Targets
    are class ids, [rows], zeros and ones, [rows, labels], or numbers, [rows].
    """
    columns = targets.reshape(len(targets), -1)
    if task.kind != "regression":
        _check(task, columns)
    used = np.flatnonzero(_deviations(features) > _LEAST_DEVIATION)
    if not len(used):
        raise BadInput(
            "all training rows are the same to the model, so a regression has nothing to tell them apart by: add rows "
            "whose texts have words that the tokenizer knows"
        )
    rows = to_spark(*_rows(features[:, used], columns, weights))
    scale = targets.std() if task.kind == "regression" else 1  # MLlib divides the penalty by it
    found = _fit(rows, task, columns.shape[1], float(scale / len(targets)))
    whole = np.zeros((len(found.biases), features.shape[1]))
    whole[:, used] = found.weights
    return Linear(whole, found.biases)


def _fit(rows: DataFrame, task: Task, labels: int, penalty: float) -> Linear:
    """Fit the columns label0, label1, ... of the rows with MLlib's regParam."""
    shared: dict[str, Any] = {"weightCol": "weight", "regParam": penalty, "maxIter": _STEPS, "standardization": False}
    if task.kind == "regression":
        scores = LinearRegression(labelCol="label0", **shared).fit(rows)
        return Linear(scores.coefficients.toArray()[None], np.array([scores.intercept]))
    if task.kind == "classification" and task.outputs > 2:
        classes = LogisticRegression(labelCol="label0", family="multinomial", **shared).fit(rows)
        return Linear(classes.coefficientMatrix.toArray(), classes.interceptVector.toArray())
    models = [
        LogisticRegression(labelCol=f"label{number}", family="binomial", **shared).fit(rows) for number in range(labels)
    ]
    weights = np.stack([model.coefficients.toArray() for model in models])
    biases = np.array([model.intercept for model in models])
    if task.kind == "multilabel":
        return Linear(weights, biases)
    halves = np.array([-0.5, 0.5])  # the difference of both logits is the logit of the second class
    return Linear(halves[:, None] * weights, halves * biases)


def _deviations(features: csr_matrix) -> Array:
    """Return the standard deviation of each column, float64 [features]."""
    rows = features.astype(np.float64)
    means, squares = (np.asarray(each.mean(0)).ravel() for each in (rows, rows.multiply(rows)))
    deviations: Array = np.sqrt(np.maximum(squares - means**2, 0))
    return deviations


def _check(task: Task, columns: Array) -> None:
    counts = np.bincount(columns[:, 0], minlength=task.outputs) if task.kind == "classification" else columns.sum(0)
    for name, count in zip(task.label_names, counts, strict=True):
        if count in (0, len(columns)):
            which = "no training row has" if count == 0 else "all training rows have"
            raise BadInput(
                f"{which} the label {name!r}, so a regression cannot learn it: add rows, or remove the label"
            )


def _rows(features: csr_matrix, columns: Array, weights: Array) -> tuple[pa.Table, StructType]:
    """Return the rows with MLlib's sparse vectors, and their types in Spark."""
    rows, size = features.shape
    features.sort_indices()  # MLlib refuses others, and the mean of a document's windows has them in any order
    offsets = pa.array(features.indptr, pa.int32())
    vectors = pa.StructArray.from_arrays(
        [
            pa.array(np.zeros(rows), pa.int8()),  # the type of sparse vectors
            pa.array(np.full(rows, size), pa.int32()),
            pa.ListArray.from_arrays(offsets, pa.array(features.indices, pa.int32())),
            pa.ListArray.from_arrays(offsets, pa.array(features.data, pa.float64())),
        ],
        names=["type", "size", "indices", "values"],
    )
    numbers = {"weight": weights, **{f"label{number}": column for number, column in enumerate(columns.T)}}
    doubles = {name: pa.array(column, pa.float64()) for name, column in numbers.items()}
    schema = [StructField("features", VectorUDT()), *(StructField(name, DoubleType()) for name in doubles)]
    return pa.table({"features": vectors, **doubles}), StructType(schema)
