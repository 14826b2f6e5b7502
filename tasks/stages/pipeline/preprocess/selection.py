"""Select rows on Spark: sample them, and split them again.

Only the positions, numbers, labels and keys of rows are in the data frames; texts are not moved. Rows are selected by a
seeded hash, so the selection depends on the seed and the data only, not on the partitioning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from include.fields.data import Preprocessing
from include.glue import Task
from tasks.encoder.labels import TYPES
from tasks.sources.normalize import overlap_key
from tasks.spark import map_numbers
from tasks.stages.pipeline.preprocess.table import Table

SCORE_BINS = 10
_BITS = 8 * 4096  # in a bitmap of Spark
_ROWS = 100_000  # whose keys a task reads

Mask = npt.NDArray[np.bool_]


def select(spark: SparkSession, rows: Table, test: Table, task: Task, options: Preprocessing) -> dict[str, Mask]:
    """Return which rows of a table belong to train and, if they are split again, to dev and heldout, [rows] each."""
    by, sentences = stratum(task), task.sentence_columns if options.resplit else ()
    keys = _keys(spark, rows, task, sentences).withColumn("split", F.lit("train"))
    if options.resplit:
        keys = resplit(keys, _keys(spark, test, task, sentences), by, options.seed)
    if options.sample < 1:
        keys = sample(keys, options.sample, by, options.seed)
    return _masks(keys, ("train", "dev", "heldout") if options.resplit else ("train",), len(rows))


def stratum(task: Task) -> Column:
    """Return the stratum of a row: its class, or the tenth of the score range that contains its score."""
    if task.kind == "multilabel":  # most combinations of labels would have too few rows to divide
        return F.lit(0)
    if task.score_range is None:
        return F.col("label")
    low, high = task.score_range
    tenth = F.floor((F.col("label") - low) / (high - low) * SCORE_BINS)
    return F.least(tenth, F.lit(SCORE_BINS - 1))  # the highest score belongs to the last tenth


def sample(rows: DataFrame, share: float, by: Column, seed: int) -> DataFrame:
    """Sample a share of each stratum of train, rounded to whole rows. Each stratum keeps at least one row."""
    same = Window.partitionBy("split", by)
    rank = F.row_number().over(same.orderBy(F.xxhash64(F.lit(seed), "row"), "row"))
    wanted = F.greatest(F.lit(1), F.round(F.count("*").over(same) * share))
    ranked = rows.withColumns({"rank": rank, "wanted": wanted})
    return ranked.where("rank <= wanted or split <> 'train'").drop("rank", "wanted")


def resplit(rows: DataFrame, test: DataFrame, by: Column, seed: int) -> DataFrame:
    """Split rows 8:1:1 within each stratum into train, dev and heldout, in the column `split`.

    Rows whose text, of which the column `text` has a key, also occurs in test are removed: validate allows them in dev,
    but they could end up in train here. Equal texts of one stratum stay in one split, so the proportions are those of
    different texts.
    """
    rows = rows.join(test.select("text"), "text", "left_anti")
    rank = F.dense_rank().over(Window.partitionBy(by).orderBy(F.xxhash64(F.lit(seed), "text")))
    ranked = rows.withColumns({"stratum": by, "rank": rank})
    tenth = F.round(F.max("rank").over(Window.partitionBy("stratum")) / 10)
    split = F.when(F.expr("rank <= tenth"), "heldout").when(F.expr("rank <= 2 * tenth"), "dev").otherwise("train")
    return ranked.withColumn("tenth", tenth).withColumn("split", split).drop("stratum", "rank", "tenth")


def _keys(spark: SparkSession, table: Table, task: Task, sentences: tuple[str, ...]) -> DataFrame:
    """Return the position, number and label of each row, and the overlap_key of its sentences, if any are given."""
    fields = {"position": pa.int64(), "row": pa.int64(), "label": TYPES[task.kind]}
    work = _ReadKeys(table, sentences, pa.schema(fields | ({"text": pa.int64()} if sentences else {})))
    tasks = max(1, -(-len(table) // _ROWS))
    return map_numbers(spark, tasks, work, from_arrow_schema(work.schema))


@dataclass(frozen=True)
class _ReadKeys:
    """Reads what `_keys` returns, for the task with a number."""

    table: Table
    sentences: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        start = number * _ROWS
        for batch in self.table.read(start, start + _ROWS, ("row", "label", *self.sentences)):
            columns: dict[str, Any] = {"position": np.arange(start, start + len(batch))}
            columns |= {name: batch.column(name) for name in ("row", "label")}
            if self.sentences:
                texts = zip(*(batch.column(name).to_pylist() for name in self.sentences), strict=True)
                columns["text"] = list(map(overlap_key, texts))
            yield pa.RecordBatch.from_pydict(columns, self.schema)
            start += len(batch)


def _masks(keys: DataFrame, splits: Sequence[str], rows: int) -> dict[str, Mask]:
    """Return the rows of each split as booleans, of which Spark sends bits."""
    place = F.col("position") + 1  # from which Spark counts bits and bitmaps
    bucket, bit = F.bitmap_bucket_number(place).alias("bucket"), F.bitmap_bit_position(place)
    found = keys.groupBy("split", bucket).agg(F.bitmap_construct_agg(bit).alias("bits")).toArrow()
    masks = {split: np.zeros((-(-rows // _BITS), _BITS), np.bool_) for split in splits}
    for split, number, bits in zip(*(found[name].to_pylist() for name in ("split", "bucket", "bits")), strict=True):
        masks[split][number - 1] = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return {split: mask.reshape(-1)[:rows] for split, mask in masks.items()}
