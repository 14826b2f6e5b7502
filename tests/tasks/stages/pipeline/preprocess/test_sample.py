"""Sampling and re-splitting: stratified, repeatable, and blind to how Spark has cut the rows."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.glue import TASKS
from tasks.stages.pipeline.preprocess.splits import resplit, sample, stratum


@pytest.fixture(scope="module")
def train(spark: SparkSession) -> DataFrame:
    """900 rows, a third of them of class 1."""
    texts = spark.range(900).withColumnRenamed("id", "row")
    label = F.when(F.col("row") % 3 == 0, 1).otherwise(0).cast("long")
    return texts.select("row", label.alias("label"), F.format_string("text %d", "row").alias("sentence1")).cache()


def rows(frame: DataFrame) -> list[int]:
    return sorted(row["row"] for row in frame.select("row").collect())


def test_a_sample_keeps_the_share_of_each_class_exactly(train: DataFrame) -> None:
    kept = sample(train, 0.2, stratum(TASKS["SST-2"]), seed=1)
    assert Counter(row["label"] for row in kept.collect()) == {0: 120, 1: 60}
    assert kept.columns == train.columns


def test_a_sample_is_the_seeds_not_the_partitioning(train: DataFrame) -> None:
    by = stratum(TASKS["SST-2"])
    first = rows(sample(train, 0.2, by, seed=1))
    assert rows(sample(train.repartition(7), 0.2, by, seed=1)) == first
    assert rows(sample(train, 0.2, by, seed=2)) != first


def test_a_rare_class_survives_sampling(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(0, 1), *((row, 0) for row in range(1, 50))], "row long, label long")
    assert Counter(row["label"] for row in sample(frame, 0.1, stratum(TASKS["SST-2"]), seed=0).collect())[1] == 1


def test_scores_are_sampled_by_tenths_of_their_range(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(row, (row % 10) / 2 + 0.1) for row in range(200)], "row long, label double")
    kept = sample(frame, 0.5, stratum(TASKS["STS-B"]), seed=0)
    assert set(Counter(row["label"] for row in kept.collect()).values()) == {10}


def test_the_highest_score_is_in_the_last_tenth(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(row, 5.0 if row % 2 else 4.5) for row in range(20)], "row long, label double")
    assert sample(frame, 0.05, stratum(TASKS["STS-B"]), seed=0).count() == 1


def test_a_resplit_is_8_1_1_in_each_class_and_keeps_every_row_once(train: DataFrame, spark: SparkSession) -> None:
    dev = spark.createDataFrame([(row, 1, f"dev {row}") for row in range(100)], train.schema)
    parts = resplit(train, dev, dev.limit(0), stratum(TASKS["SST-2"]), seed=3)
    counts = {name: Counter(row["label"] for row in part.collect()) for name, part in parts.items()}
    assert counts == {"train": {0: 480, 1: 320}, "dev": {0: 60, 1: 40}, "heldout": {0: 60, 1: 40}}
    assert sorted(number for part in parts.values() for number in rows(part)) == list(range(1000))
    joined = parts["train"].unionByName(parts["dev"]).unionByName(parts["heldout"])
    assert joined.where("row = 907").collect()[0]["sentence1"] == "dev 7"  # its row in dev, after train's 900


def test_a_resplit_keeps_equal_texts_together(spark: SparkSession) -> None:
    texts = [(row, 0, f"text {row // 2}" + "." * (row % 2)) for row in range(400)]
    frame = spark.createDataFrame(texts, "row long, label long, sentence1 string")
    parts = resplit(frame, frame.limit(0), frame.limit(0), stratum(TASKS["SST-2"]), seed=0)
    sides = [{number // 2 for number in rows(part)} for part in parts.values()]
    assert [len(side) for side in sides] == [160, 20, 20]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]


def test_a_resplit_leaves_out_what_stands_in_test(train: DataFrame, spark: SparkSession) -> None:
    dev = spark.createDataFrame([(row, 1, f"dev {row}") for row in range(100)], train.schema)
    test = spark.createDataFrame([(0, 1, "DEV 7."), (1, 1, "dev 8 :)")], train.schema)  # the second is another text
    parts = resplit(train, dev, test, stratum(TASKS["SST-2"]), seed=3)
    assert 907 not in {number for part in parts.values() for number in rows(part)}
    assert sum(part.count() for part in parts.values()) == 999
