"""The way of the validated rows to token ids on Spark: select, clean, augment and tokenize them.

Rows are selected by a seeded hash, so the selection depends on the seed and the data only, not on the partitioning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from include.experiment import Experiment
from include.fields.data import Cleaning
from include.glue import Task
from include.stages import BadInput
from tasks.encoder.cleaning import clean_all
from tasks.encoder.labels import TYPES
from tasks.sources.normalize import overlap_key
from tasks.spark import partitions, read_parquet, session, ship
from tasks.stages.pipeline.preprocess.augment import add_copies, augmentation
from tasks.stages.pipeline.preprocess.tokenize import COUNTS, TokenizePartition

log = logging.getLogger(__name__)

SCORE_BINS = 10


def tokenize_splits(
    experiment: Experiment, validated: Path, tokenizer: Path, output: Path
) -> dict[str, dict[str, int]]:
    """Write a folder of token ids for each split, and return its counts: COUNTS and "partitions"."""
    with session(experiment, "preprocess") as spark:
        shipped, options = ship(spark, tokenizer), experiment.preprocessing
        augment = augmentation(spark, experiment, tokenizer) if options.augment else None
        counts = {}
        for name, rows in _select_rows(spark, experiment, validated).items():
            texts = _clean_texts(rows, name, options.clean)
            if augment is not None and name == "train":
                texts = texts.mapInArrow(augment, texts.schema)
            counts[name] = found = _tokenize(texts, experiment, shipped, output / name)
            log.info("%s: %d rows, %d tokens, %d partitions", name, found["rows"], found["tokens"], found["partitions"])
            if found["empty"]:
                log.warning("%s: %d rows have an empty sentence after cleaning; they are kept", name, found["empty"])
        return counts


def _select_rows(spark: SparkSession, experiment: Experiment, validated: Path) -> dict[str, DataFrame]:
    """Return the rows of each split that the experiment selects, with the copies of those of train."""
    options, by = experiment.preprocessing, stratum(experiment.task)
    splits = {name: read_parquet(spark, validated / f"{name}.parquet") for name in ("train", "dev", "test")}
    if options.resplit:
        splits |= resplit(splits["train"], splits["dev"], splits["test"], by, options.seed)
    if options.sample < 1:
        splits["train"] = sample(splits["train"], options.sample, by, options.seed)
    if options.augment:
        splits["train"] = add_copies(splits["train"], options.augment)
    if not pads.dataset(validated / "test.parquet").count_rows():  # there is no test file
        del splits["test"]
    return splits


def _clean_texts(rows: DataFrame, split: str, rules: Collection[Cleaning]) -> DataFrame:
    """Return row, label and cleaned sentences, partitioned by `row`. Raise BadInput if there are no rows."""
    number = rows.count()
    if not number:
        raise BadInput(f"no rows are left for {split}: add more data, or turn preprocessing.resplit off")
    sentences = [name for name in ("sentence1", "sentence2") if name in rows.columns]
    cut = rows.repartitionByRange(partitions(number), "row").sortWithinPartitions("row")
    return cut.select("row", "label", *(cleaned(F.col(name), rules).alias(name) for name in sentences))


def _tokenize(texts: DataFrame, experiment: Experiment, tokenizer: str, folder: Path) -> dict[str, int]:
    """Tokenize the partitions, and sum their counts."""
    folder.mkdir()
    _, _, *sentences = texts.columns
    label, options = TYPES[experiment.task.kind], experiment.preprocessing
    work = TokenizePartition(
        tokenizer, options.max_length, options.window_stride, tuple(sentences), label, str(folder)
    )  # fmt: skip
    parts = texts.mapInArrow(work, ", ".join(f"{count} long" for count in COUNTS)).toArrow()
    for leftover in folder.glob(".part-*"):  # written by attempts that Spark has abandoned
        leftover.unlink()
    totals = {count: sum(parts[count].to_pylist()) for count in COUNTS}
    return totals | {"partitions": parts.num_rows}


def cleaned(text: Column, rules: Collection[str]) -> Column:
    """Apply the rules to a text column."""
    if not rules:
        return text

    def clean_batch(texts: pa.Array) -> pa.Array:
        return pa.array(clean_all(texts.to_pylist(), rules), pa.string())

    found: Column = arrow_udf(clean_batch, "string")(text)  # type: ignore[call-overload]  # hints say the kind of UDF
    return found


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
    """Sample a share of each stratum, rounded to whole rows. Each stratum keeps at least one row."""
    same = Window.partitionBy(by)
    rank = F.row_number().over(same.orderBy(F.xxhash64(F.lit(seed), "row"), "row"))
    wanted = F.greatest(F.lit(1), F.round(F.count("*").over(same) * share))
    return rows.withColumns({"rank": rank, "wanted": wanted}).where("rank <= wanted").drop("rank", "wanted")


def resplit(train: DataFrame, dev: DataFrame, test: DataFrame, by: Column, seed: int) -> dict[str, DataFrame]:
    """Join train and dev, and split them 8:1:1 within each stratum into train, dev and heldout.

    Rows whose text also occurs in test are removed: validate allows them in dev, but they could end up in train here.
    Equal texts of one stratum stay in one split, so the proportions are those of different texts. The number of a dev
    row becomes row + 1 + the highest row of train, so that `row` stays unique.
    """
    highest = train.agg(F.max("row")).first()
    first_dev_row = 0 if highest is None or highest[0] is None else int(highest[0]) + 1
    joined = train.unionByName(dev.withColumn("row", F.col("row") + first_dev_row))
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
