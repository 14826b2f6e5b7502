"""Stratified sampling and re-splitting.

Both rank the rows of a stratum by a hash of the seed, so what is chosen depends on seed and data only, never on
how Spark has partitioned them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from include.glue import Task
from tasks.stages.preprocess.clean import RULES, clean

SCORE_BINS = 10


def stratum(task: Task) -> Column:
    """What a row is stratified by: its class, or the tenth of the score range that its score lies in."""
    if task.score_range is None:
        return F.col("label")
    low, high = task.score_range
    return F.floor((F.col("label") - low) / (high - low) * SCORE_BINS)


def sample(rows: DataFrame, share: float, by: Column, seed: int) -> DataFrame:
    """The share of each stratum, to the nearest row; one row at least, so that no class is lost."""
    same = Window.partitionBy(by)
    rank = F.row_number().over(same.orderBy(F.xxhash64(F.lit(seed), "row"), "row"))
    wanted = F.greatest(F.lit(1), F.round(F.count("*").over(same) * share))
    return rows.withColumns({"rank": rank, "wanted": wanted}).where("rank <= wanted").drop("rank", "wanted")


def resplit(train: DataFrame, dev: DataFrame, test: DataFrame, by: Column, seed: int) -> dict[str, DataFrame]:
    """Train and dev joined and cut 8:1:1 within each stratum into train, dev and heldout.

    Rows whose text stands in test too are left out: validate allows them in dev, but here they could go to train.

    Texts of one stratum that are equal but for case, punctuation, tags and white space stay together, so the
    shares are those of different texts. A row of dev gets the number row + 1 + the highest row of train, so that
    `row` stays unique.
    """
    joined = train.unionByName(dev.withColumn("row", F.col("row") + first_dev_row(train)))
    joined = joined.withColumn("text", _text(joined)).join(test.select(_text(test).alias("text")), "text", "left_anti")
    same = Window.partitionBy(by)
    rank = F.dense_rank().over(same.orderBy(F.xxhash64(F.lit(seed), "text")))
    ranked = joined.withColumns({"stratum": by, "rank": rank})
    tenth = F.round(F.max("rank").over(Window.partitionBy("stratum")) / 10)
    cut = ranked.withColumn("tenth", tenth)
    parts = {"train": "rank > 2 * tenth", "dev": "rank > tenth and rank <= 2 * tenth", "heldout": "rank <= tenth"}
    return {name: cut.where(condition).drop("text", "stratum", "rank", "tenth") for name, condition in parts.items()}


def _text(rows: DataFrame) -> Column:
    """A row's text without what does not tell two texts apart: case, punctuation, tags and white space."""
    sentences = [name for name in ("sentence1", "sentence2") if name in rows.columns]
    return F.concat_ws("\t", *(F.trim(clean(F.col(name), RULES)) for name in sentences))


def first_dev_row(train: DataFrame) -> int:
    """The number that dev's row 0 gets when dev is joined to train."""
    highest = train.agg(F.max("row")).first()
    return 0 if highest is None or highest[0] is None else int(highest[0]) + 1
