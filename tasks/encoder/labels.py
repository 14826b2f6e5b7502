"""The labels of a split as a column of a table: class ids, scores or, for a multi-label task, texts.

Such a text has one character per label of the task, 1 where the row has the label and otherwise 0.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from include.glue import Kind
from tasks.encoder.windows import Array

#: The type of the column by kind of task.
TYPES: dict[Kind, pa.DataType] = {"classification": pa.int64(), "multilabel": pa.string(), "regression": pa.float64()}


def to_column(labels: Array) -> pa.Array:
    """Return the column of class ids or scores, [rows], or of zeros and ones, [rows, labels]."""
    if labels.ndim == 1:
        return pa.array(labels)
    return pa.array(["".join(map(str, row)) for row in labels.astype(np.int64).tolist()], pa.string())


def from_column(column: pa.ChunkedArray) -> Array:
    """Return class ids or scores, [rows], or zeros and ones, int64 [rows, labels], from a column without nulls."""
    if not pa.types.is_string(column.type):
        values: Array = column.to_numpy()
        return values
    texts = column.to_pylist()
    digits = np.frombuffer("".join(texts).encode(), np.uint8).astype(np.int64) - ord("0")
    return digits.reshape(len(texts), len(texts[0]) if texts else 0)
