from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tasks.encoder.batching import Array
from tasks.encoder.labels import from_column, to_column


@pytest.mark.parametrize(
    "labels",
    [np.array([2, 0, 1]), np.array([0.5, 4.25]), np.array([[1, 0, 1], [0, 0, 0]]), np.zeros((0, 0), np.int64)],
    ids=["classes", "scores", "several", "none"],
)
def test_labels_come_back_from_a_column(labels: Array) -> None:
    found = from_column(pa.chunked_array([to_column(labels)]))
    assert found.dtype == labels.dtype
    assert found.tolist() == labels.tolist()


def test_rows_with_the_same_labels_have_equal_values() -> None:
    assert to_column(np.array([[1, 0], [0, 1], [1, 0]])).to_pylist() == ["10", "01", "10"]
