"""Sampling and re-splitting: stratified, repeatable, and blind to how Spark has cut the rows."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.glue import TASKS
from tasks.stages.pipeline.preprocess.selection import resplit, sample, stratum

SCORED = "row long, label double, split string"


@pytest.fixture(scope="module")
def train(spark: SparkSession) -> DataFrame:
    """900 rows, a third of them of class 1."""
    label = F.when(F.col("id") % 3 == 0, 1).otherwise(0).cast("long")
    columns = {"row": F.col("id"), "label": label, "split": F.lit("train"), "text": F.xxhash64("id")}
    return spark.range(900).select(*(column.alias(name) for name, column in columns.items())).cache()


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
    rows = [(0, 1, "train"), *((row, 0, "train") for row in range(1, 50))]
    frame = spark.createDataFrame(rows, "row long, label long, split string")
    assert Counter(row["label"] for row in sample(frame, 0.1, stratum(TASKS["SST-2"]), seed=0).collect())[1] == 1


def test_scores_are_sampled_by_tenths_of_their_range(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(row, (row % 10) / 2 + 0.1, "train") for row in range(200)], SCORED)
    kept = sample(frame, 0.5, stratum(TASKS["STS-B"]), seed=0)
    assert set(Counter(row["label"] for row in kept.collect()).values()) == {10}


def test_the_highest_score_is_in_the_last_tenth(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(row, 5.0 if row % 2 else 4.5, "train") for row in range(20)], SCORED)
    assert sample(frame, 0.05, stratum(TASKS["STS-B"]), seed=0).count() == 1


def splits(frame: DataFrame) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in frame.collect():
        found.setdefault(row["split"], []).append(row["row"])
    return found


def test_only_train_is_sampled(train: DataFrame) -> None:
    frame = train.withColumn("split", F.when(F.col("row") < 300, "train").when(F.col("row") < 600, "dev"))
    kept = splits(sample(frame.where("split is not null"), 0.1, stratum(TASKS["SST-2"]), seed=1))
    assert {name: len(numbers) for name, numbers in kept.items()} == {"train": 30, "dev": 300}


def test_a_resplit_is_8_1_1_in_each_class_and_keeps_every_row_once(train: DataFrame) -> None:
    parts = resplit(train, train.limit(0), stratum(TASKS["SST-2"]), seed=3)
    assert sorted(parts.columns) == sorted(train.columns)
    counts = Counter((row["split"], row["label"]) for row in parts.collect())
    each = {"train": (480, 240), "dev": (60, 30), "heldout": (60, 30)}
    assert counts == {(name, label): number for name, numbers in each.items() for label, number in enumerate(numbers)}
    assert sorted(number for numbers in splits(parts).values() for number in numbers) == list(range(900))


def test_a_resplit_keeps_equal_texts_together(train: DataFrame) -> None:
    pairs = train.withColumns({"text": F.floor(F.col("row") / 2), "label": F.lit(0)})
    found = splits(resplit(pairs, pairs.limit(0), stratum(TASKS["SST-2"]), seed=0))
    sides = [{number // 2 for number in found[name]} for name in ("train", "dev", "heldout")]
    assert [len(side) for side in sides] == [360, 45, 45]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]


def test_a_resplit_leaves_out_what_stands_in_test(train: DataFrame) -> None:
    found = splits(resplit(train, train.where("row = 7"), stratum(TASKS["SST-2"]), seed=3))
    assert set(range(900)) - {number for numbers in found.values() for number in numbers} == {7}
