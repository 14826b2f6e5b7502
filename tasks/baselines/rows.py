"""Rows for MLlib, in one partition: its sums over several vary with the order of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from include.experiment import Experiment
from include.scratch import scratch_folder
from tasks.spark import session
from tasks.staging import Staging, fetched, staging

_BATCH = 10_000  # rows


@dataclass(frozen=True)
class OnePartition:
    """Brings rows to an executor, by a file in a folder."""

    spark: SparkSession
    staged: Staging
    folder: Path

    @classmethod
    @contextmanager
    def of(cls, experiment: Experiment, folder: Path) -> Iterator[Self]:
        """Start Spark for a training whose output is the folder."""
        with session(experiment, "train") as spark, staging(spark) as staged, scratch_folder(folder, "rows") as scratch:
            yield cls(spark, staged, scratch)

    def __call__(self, rows: pa.Table, schema: StructType) -> DataFrame:
        """Return the rows, in their order."""
        file = self.folder / "rows.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows, _BATCH)
        rows_there = self.spark.range(0, 1, 1, 1).mapInArrow(_Read(self.staged.share(file)), schema)
        return rows_there.cache()  # MLlib reads them several times


@dataclass(frozen=True)
class _Read:
    """Reads an Arrow file; a function for mapInArrow."""

    address: str

    def __call__(self, _: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_file(pa.memory_map(str(fetched(self.address)))) as reader:
            yield from map(reader.get_batch, range(reader.num_record_batches))
