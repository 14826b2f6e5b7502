"""Predict a split on Spark: its source is the token ids of documents, its sink a table of all answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from include.answers import ROW
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import read_head
from tasks.inference.labeler import Labeler, answers, progress


def predict(spark: SparkSession, labeler: Labeler, split: Path, parts: int) -> pa.Table:
    """Return the number of each row (`row`) and its answers, sorted by it. Executors read the split in place."""
    head = read_head(Path(labeler.model.folder))
    none = pa.table({ROW: pa.array([], pa.int64()), **answers(head, np.zeros((0, head.outputs)))})
    rows, done = len(TokenTable.open(split).documents), spark.sparkContext.accumulator(0)
    work = _LabelPartition(labeler, str(split.absolute()), done)
    with progress(lambda: done.value, rows):
        table = spark.range(0, rows, 1, parts).mapInArrow(work, from_arrow_schema(none.schema)).toArrow()
    return table.sort_by(ROW)


@dataclass(frozen=True)
class _LabelPartition:
    """Labels the documents whose positions are in the first column of the chunks; a function for mapInArrow."""

    labeler: Labeler
    split: str
    done: Accumulator[int]

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        positions = np.concatenate([np.zeros(0, np.int64), *(chunk.column(0).to_numpy() for chunk in chunks)])
        if len(positions):
            yield from self.labeler.label_tokens(_open(self.split), positions).to_batches()
            self.done.add(len(positions))


@lru_cache(maxsize=1)  # a Python worker processes several partitions
def _open(split: str) -> TokenTable:
    return TokenTable.open(Path(split))
