"""Predict a split on Spark: its source is the token ids of documents, its sink a table of all answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from include.answers import ROW
from tasks.encoder.batching import TokenTable
from tasks.inference.labeler import Labeler, answers, progress
from tasks.staging import Staging, below, fetched


def predict(spark: SparkSession, staged: Staging, labeler: Labeler, split: Path) -> pa.Table:
    """Return the number of each row (`row`) and its answers, sorted by it. A task labels a file of the split."""
    none = pa.table({ROW: pa.array([], pa.int64()), **answers(labeler.head, np.zeros((0, labeler.head.outputs)))})
    rows, done = len(TokenTable.open(split).documents), spark.sparkContext.accumulator(0)
    parts = tuple(sorted(part.name for part in split.glob("part-*.arrow")))
    work = _LabelParts(labeler, staged.share(split), parts, done)
    with progress(lambda: done.value, rows):
        numbers = spark.range(0, len(parts), 1, len(parts))
        return numbers.mapInArrow(work, from_arrow_schema(none.schema)).toArrow().sort_by(ROW)


@dataclass(frozen=True)
class _LabelParts:
    """Labels the parts whose positions are in the first column of the chunks; a function for mapInArrow."""

    labeler: Labeler
    split: str  # the address of the folder
    parts: tuple[str, ...]
    done: Accumulator[int]

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            for part in chunk.column(0).to_pylist():
                table = TokenTable.open(fetched(below(self.split, self.parts[part])))
                if len(table):
                    yield from self.labeler.label_tokens(table).to_batches()
                self.done.add(len(table.documents))
