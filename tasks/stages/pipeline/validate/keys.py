"""The facts about a row that depend on other rows, as operations on the keys of all rows, without their texts.

A frame of keys has one row for each row of the drafts: the `piece` of a file that it was read from, its number `row`,
its `split` as a position in SPLITS, text_key, overlap_key, and label. Of rows that have yet to be split, it also has
`ranks`: the positions of the row's labels in alphabetical order.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from include.glue import SPLITS, Task
from tasks.encoder.labels import TYPES
from tasks.sources.files import BINS

TRAIN, DEV, TEST = range(len(SPLITS))
_FEW = 1_000_000  # rows that each executor may hold


def keys_schema(task: Task, is_one: bool) -> StructType:
    """Return the schema of the keys, which have `ranks` if the rows have yet to be split."""
    longs = [pa.field(name, pa.int64()) for name in ("piece", "row", "text_key", "overlap_key")]
    ranks = [pa.field("ranks", pa.list_(pa.int32()))] if is_one else []
    fields = [longs[0], pa.field("split", pa.int32()), *longs[1:], pa.field("label", TYPES[task.kind]), *ranks]
    return from_arrow_schema(pa.schema(fields))


def exceptions(keys: DataFrame) -> DataFrame:
    """Return piece and row of each row whose text has several labels in its split, or occurs in another one.

    Either `labels_of_text`, the number of these labels, or `splits`, the splits with the text as the sum of 2 **
    position, is not null. A row for which both holds occurs twice.
    """
    shared = _few(
        keys.select("overlap_key", F.expr("shiftleft(1, split)").alias("bit"))
        .groupBy("overlap_key")
        .agg(F.bit_or("bit").alias("splits"))
        .where(f"splits & {1 << TRAIN} != 0 AND splits != {1 << TRAIN}")
    )
    same = ["split", "text_key"]
    labeled = keys.where(F.col("split") != TEST)
    several = labeled.groupBy(same).agg(F.min("label").alias("low"), F.max("label").alias("high")).where("low != high")
    labels = labeled.join(_few(several.select(same)), same).groupBy(same)
    found = labeled.join(_few(labels.agg(F.count_distinct("label").alias("labels_of_text"))), same)
    return found.select("piece", "row", "labels_of_text", _null("int", "splits")).union(
        keys.join(shared, "overlap_key").select("piece", "row", _null("long", "labels_of_text"), "splits")
    )


def with_splits(keys: DataFrame, task: Task) -> DataFrame:
    """Return the keys with the splits that OwnFiles gives to the rows of files with all rows."""
    here = _few(_not_in_train(keys, task))
    split = F.coalesce("split", F.lit(TRAIN)).alias("split")
    others = [name for name in keys.columns if name != "split"]
    return keys.drop("split").join(here, "overlap_key", "left").select(*others, split).persist(StorageLevel.DISK_ONLY)


def _not_in_train(keys: DataFrame, task: Task) -> DataFrame:
    """Return the overlap_key and the split of the texts in dev and test."""
    first = keys.groupBy("overlap_key").agg(*(F.min_by(name, "row").alias(name) for name in ("label", "ranks")))
    strata = (_bins(first) if task.kind == "regression" else _rarest_labels(first, task)).cache()
    sizes = strata.groupBy("stratum").agg(F.count("*").alias("size"))
    placed = strata.withColumn("place", F.row_number().over(Window.partitionBy("stratum").orderBy("overlap_key")))
    some = F.when(F.col("size") > 2, F.greatest(F.lit(1), F.bround(F.col("size") / 10))).otherwise(0)
    chosen = placed.join(F.broadcast(sizes), "stratum").where(F.col("place") <= 2 * some)
    return chosen.select("overlap_key", F.when(F.col("place") <= some, TEST).otherwise(DEV).alias("split"))


def _few(rows: DataFrame) -> DataFrame:
    """Compute what is usually a few rows of many, to which the many then need not be moved."""
    rows = rows.cache()
    return F.broadcast(rows) if rows.count() <= _FEW else rows


def _null(kind: str, name: str) -> Column:
    return F.lit(None).cast(kind).alias(name)


def _bins(first: DataFrame) -> DataFrame:
    """Add the stratum of each text with a score: the tenth of all texts, in the order of their scores, that has it."""
    rows = first.count()
    bins = min(BINS, max(1, rows // 10))
    order = Window.orderBy(F.col("label") + 0.0, "overlap_key")  # of -0.0 and 0.0, none comes first
    starts = [F.when(F.col("at") >= rows * number // bins, 1).otherwise(0) for number in range(bins)]
    numbered = first.withColumn("at", F.row_number().over(order) - 1)
    return numbered.select("overlap_key", sum(starts[1:], starts[0]).alias("stratum"))


def _rarest_labels(first: DataFrame, task: Task) -> DataFrame:
    """Add the stratum of each text with labels: of those that occur least often, the first one in the alphabet."""
    each = first.select(F.explode("ranks").alias("rank"))
    counts = {row["rank"]: row["count"] for row in each.groupBy("rank").count().collect()}
    rows = F.array(*(F.lit(counts.get(rank, 0)) for rank in range(len(task.labels))))
    rarest = F.array_min(F.transform("ranks", lambda rank: F.struct(rows[rank], rank.alias("rank"))))
    return first.select("overlap_key", F.coalesce(rarest["rank"], F.lit(-1)).alias("stratum"))
