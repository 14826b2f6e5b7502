"""Sampling and re-splitting: stratified, repeatable, and by the hash of Spark, which chose rows in earlier versions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from include.glue import TASKS
from tasks.stages.pipeline.preprocess.selection import (
    DEV,
    DROPPED,
    HELDOUT,
    TRAIN,
    Keys,
    resplit,
    sample,
    seeded_hash,
    strata,
)

Array = npt.NDArray[Any]
ROWS = np.arange(900)
LABELS = (ROWS % 3 == 0).astype(np.int64)  # a third of the rows are of class 1
NONE = np.zeros(0, np.int64)


def keys(labels: Array, task: str = "SST-2", text: Array | None = None) -> Keys:
    rows = np.arange(len(labels))
    return Keys(strata(pa.array(labels), TASKS[task]), rows, rows if text is None else text)


def sampled(labels: Array, share: float, seed: int, task: str = "SST-2") -> Array:
    """The labels of the rows that stay."""
    found = sample(keys(labels, task), np.full(len(labels), TRAIN), share, seed)
    assert set(found.tolist()) <= {TRAIN, DROPPED}
    kept: Array = labels[found == TRAIN]
    return kept


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1])
def test_the_hash_is_sparks(spark: SparkSession, seed: int) -> None:
    values = [0, 1, -1, 2**63 - 1, -(2**63), *np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 50).tolist()]
    frame = spark.createDataFrame([(value,) for value in values], "value long")
    expected = [hashed for (hashed,) in frame.select(F.xxhash64(F.lit(seed), "value")).collect()]
    assert seeded_hash(np.array(values), seed).tolist() == expected


def test_a_sample_keeps_the_share_of_each_class_exactly() -> None:
    assert Counter(sampled(LABELS, 0.2, seed=1).tolist()) == {0: 120, 1: 60}
    assert Counter(sampled(LABELS, 0.0025, seed=1).tolist()) == {0: 2, 1: 1}  # of 600, 1.5 is rounded up


def test_a_sample_is_the_seeds_not_the_order_of_the_rows() -> None:
    every, order = keys(LABELS), np.random.default_rng(0).permutation(900)
    other = Keys(every.stratum[order], every.row[order], every.text[order])
    first, second = (sample(one, np.full(900, TRAIN), 0.2, seed=1) for one in (every, other))
    assert first[order].tolist() == second.tolist()
    assert sample(every, np.full(900, TRAIN), 0.2, seed=2).tolist() != first.tolist()


def test_a_rare_class_survives_sampling() -> None:
    assert Counter(sampled(np.array([1, *[0] * 49]), 0.1, seed=0).tolist())[1] == 1


def test_scores_are_sampled_by_tenths_of_their_range() -> None:
    kept = sampled(np.arange(200) % 10 / 2 + 0.1, 0.5, seed=0, task="STS-B")
    assert set(Counter(kept.tolist()).values()) == {10}


def test_the_highest_score_is_in_the_last_tenth() -> None:
    assert len(sampled(np.array([4.5, 5.0] * 10), 0.05, seed=0, task="STS-B")) == 1


def test_only_train_is_sampled() -> None:
    found = sample(keys(LABELS), np.repeat([TRAIN, DEV, DROPPED], 300), 0.1, seed=1)
    assert Counter(found.tolist()) == {TRAIN: 30, DEV: 300, DROPPED: 570}


def test_a_resplit_is_8_1_1_in_each_class_and_keeps_every_row_once() -> None:
    found = resplit(keys(LABELS), NONE, seed=3)
    assert Counter(zip(found.tolist(), LABELS.tolist(), strict=True)) == {
        (TRAIN, 0): 480, (TRAIN, 1): 240, (DEV, 0): 60, (DEV, 1): 30, (HELDOUT, 0): 60, (HELDOUT, 1): 30,
    }  # fmt: skip


def test_a_resplit_keeps_equal_texts_together() -> None:
    found = resplit(keys(np.zeros(900, np.int64), text=ROWS // 2), NONE, seed=0)
    assert (found[::2] == found[1::2]).all()
    assert Counter(found[::2].tolist()) == {TRAIN: 360, DEV: 45, HELDOUT: 45}


def test_a_resplit_leaves_out_what_stands_in_test() -> None:
    assert np.flatnonzero(resplit(keys(LABELS), np.array([7]), seed=3) == DROPPED).tolist() == [7]


def test_no_row_is_left_if_all_stand_in_test() -> None:
    found = resplit(keys(LABELS), ROWS, seed=3)
    assert (found == DROPPED).all() and (sample(keys(LABELS), found, 0.5, seed=3) == DROPPED).all()
