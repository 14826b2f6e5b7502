"""Copies: numbered so that their source is known, and blind to how Spark has cut the rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tokenizers import Tokenizer, models

from include.stages import BadInput
from tasks.encoder.tokens import COPY
from tasks.stages.pipeline.preprocess.augment import AugmentPartition, add_copies, mask_token
from tests.tasks.stages.pipeline.pretrain.samples import tiny_encoder

TEXT = "a good film that moved me very much"


@pytest.fixture(scope="module")
def train(spark: SparkSession) -> DataFrame:
    rows = [(row, row % 2, TEXT, TEXT) for row in (0, 2, 7, 30)]
    return spark.createDataFrame(rows, "row long, label long, sentence1 string, sentence2 string")


def augmented(spark: SparkSession, rows: DataFrame, seed: int = 0) -> dict[int, tuple[int, str, str]]:
    work = AugmentPartition(seed, "[MASK]", spark.sparkContext.broadcast({"film": ("movie",)}))
    found = rows.mapInArrow(work, rows.schema).collect()
    return {row["row"]: (row["label"], row["sentence1"], row["sentence2"]) for row in found}


def test_a_copys_number_tells_source_and_method(train: DataFrame) -> None:
    rows = [row["row"] for row in add_copies(train, ["order", "synonyms", "order"]).collect()]
    assert sorted(rows) == [source + COPY * method for method in (0, 1, 3) for source in (0, 2, 7, 30)]


def test_copies_are_changed_and_rows_are_not(spark: SparkSession, train: DataFrame) -> None:
    found = augmented(spark, add_copies(train, ["synonyms", "masking", "order"]))
    assert len(found) == 16
    assert all(label == number % COPY % 2 for number, (label, *_) in found.items())
    for source in (0, 2, 7, 30):
        assert found[source][1:] == (TEXT, TEXT)
        assert found[source + COPY][1:] == (TEXT.replace("film", "movie"),) * 2
        assert all(text.count("[MASK]") in (1, 2) for text in found[source + 2 * COPY][1:])
        assert all(sorted(text.split()) == sorted(TEXT.split()) for text in found[source + 3 * COPY][1:])
    orders = [text for source in (0, 2, 7, 30) for text in found[source + 3 * COPY][1:]]
    assert len(set(orders)) == 8  # every row and sentence has its own


def test_copies_are_the_seeds_not_the_partitionings(spark: SparkSession, train: DataFrame) -> None:
    copies = add_copies(train, ["masking", "order"])
    first = augmented(spark, copies.coalesce(1))
    assert augmented(spark, copies.repartition(5, "row")) == first
    assert augmented(spark, add_copies(train, ["order"]))[7 + 3 * COPY] == first[7 + 3 * COPY]
    assert augmented(spark, copies, seed=1) != first


def test_the_tokenizer_says_what_hides_a_word(tmp_path: Path, encoder: Path) -> None:
    assert mask_token(tiny_encoder(tmp_path / "masked") / "tokenizer.json") == "[MASK]"
    assert mask_token(encoder / "tokenizer.json") == "[UNK]"
    Tokenizer(models.WordLevel({"[MASK]": 0}, "[MASK]")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(BadInput, match=r"tokenizer.json has none of the special tokens \[MASK\].*remove masking"):
        mask_token(tmp_path / "tokenizer.json")
