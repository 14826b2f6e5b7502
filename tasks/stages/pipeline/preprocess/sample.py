"""Stratified sampling and re-splitting.

Both rank the rows of a stratum by a seeded hash, so the selection depends on the seed and the data only, not on the
partitioning of the rows.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from include.glue import Task
from tasks.sources.normalize import overlap_key

SCORE_BINS = 10


def stratum(task: Task) -> Column:
    """Return the stratum of a row: its class, or the tenth of the score range that contains its score.

    The rows of a multi-label task are one stratum: most combinations of labels would have too few rows to divide.
    """
    if task.kind == "multilabel":
        return F.lit(0)
    if task.score_range is None:
        return F.col("label")
    low, high = task.score_range
    tenth = F.floor((F.col("label") - low) / (high - low) * SCORE_BINS)
    return F.least(tenth, F.lit(SCORE_BINS - 1))  # the highest score belongs to the last tenth


def sample(rows: DataFrame, share: float, by: Column, seed: int) -> DataFrame:
    """Sample a share of each stratum.

    Args:
        rows: A data frame with a column `row`.
        share: The share to keep, between 0 and 1. It is rounded to whole rows; each stratum keeps at least one row.
        by: The stratum of a row.
        seed: The random seed.
    """
    same = Window.partitionBy(by)
    rank = F.row_number().over(same.orderBy(F.xxhash64(F.lit(seed), "row"), "row"))
    wanted = F.greatest(F.lit(1), F.round(F.count("*").over(same) * share))
    return rows.withColumns({"rank": rank, "wanted": wanted}).where("rank <= wanted").drop("rank", "wanted")


def resplit(train: DataFrame, dev: DataFrame, test: DataFrame, by: Column, seed: int) -> dict[str, DataFrame]:
    """Join train and dev, and split them 8:1:1 within each stratum into train, dev and heldout.

    Rows whose text also occurs in test are removed: validate allows them in dev, but they could end up in train here.
    Texts count as equal by overlap_key, as in validate. Equal texts of one stratum stay in one split, so the
    proportions are those of different texts. The number of a dev row becomes row + 1 + the highest row of train, so
    that `row` stays unique.

    Args:
        train: The validated train split.
        dev: The validated dev split.
        test: The validated test split.
        by: The stratum of a row.
        seed: The random seed.

    Returns:
        The new splits "train", "dev" and "heldout".
    """
    joined = train.unionByName(dev.withColumn("row", F.col("row") + first_dev_row(train)))
    joined = joined.withColumn("text", _key(joined)).join(test.select(_key(test).alias("text")), "text", "left_anti")
    same = Window.partitionBy(by)
    rank = F.dense_rank().over(same.orderBy(F.xxhash64(F.lit(seed), "text")))
    ranked = joined.withColumns({"stratum": by, "rank": rank})
    tenth = F.round(F.max("rank").over(Window.partitionBy("stratum")) / 10)
    cut = ranked.withColumn("tenth", tenth)
    parts = {"train": "rank > 2 * tenth", "dev": "rank > tenth and rank <= 2 * tenth", "heldout": "rank <= tenth"}
    return {name: cut.where(condition).drop("text", "stratum", "rank", "tenth") for name, condition in parts.items()}


def _key(rows: DataFrame) -> Column:
    """Return the overlap_key of a row."""

    def keys(*columns: pa.Array) -> pa.Array:
        return pa.array(map(overlap_key, zip(*(column.to_pylist() for column in columns), strict=True)), pa.int64())

    sentences = [F.col(name) for name in ("sentence1", "sentence2") if name in rows.columns]
    found: Column = arrow_udf(keys, "long")(*sentences)  # type: ignore[call-overload]  # hints say the kind of UDF
    return found


def first_dev_row(train: DataFrame) -> int:
    """Return the number that row 0 of dev gets when dev is appended to train."""
    highest = train.agg(F.max("row")).first()
    return 0 if highest is None or highest[0] is None else int(highest[0]) + 1
