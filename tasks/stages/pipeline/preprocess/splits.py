"""The way of the validated rows to token ids: select, clean, augment and tokenize them on Spark."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.experiment import Experiment
from include.sections import Cleaning
from include.stages import BadInput
from tasks.encoder.labels import TYPES
from tasks.spark import partitions, read_parquet, session, ship
from tasks.stages.pipeline.preprocess.augment import add_copies, augmentation
from tasks.stages.pipeline.preprocess.clean import cleaned
from tasks.stages.pipeline.preprocess.sample import resplit, sample, stratum
from tasks.stages.pipeline.preprocess.tokenize import COUNTS, TokenizePartition

log = logging.getLogger(__name__)


def tokenize_splits(
    experiment: Experiment, validated: Path, tokenizer: Path, output: Path
) -> dict[str, dict[str, int]]:
    """Write a folder of token ids for each split, and return its counts: COUNTS and "partitions"."""
    with session(experiment, "preprocess") as spark:
        shipped, options = ship(spark, tokenizer), experiment.preprocessing
        augment = augmentation(spark, experiment, tokenizer) if options.augment else None
        counts = {}
        for name, rows in _splits(spark, experiment, validated).items():
            texts = _texts(rows, name, options.clean)
            if augment is not None and name == "train":
                texts = texts.mapInArrow(augment, texts.schema)
            counts[name] = _tokenize(texts, experiment, shipped, output / name)
            _report(name, counts[name])
        return counts


def _splits(spark: SparkSession, experiment: Experiment, validated: Path) -> dict[str, DataFrame]:
    options, by = experiment.preprocessing, stratum(experiment.task)
    splits = {name: read_parquet(spark, validated / f"{name}.parquet") for name in ("train", "dev", "test")}
    if options.resplit:
        splits |= resplit(splits["train"], splits["dev"], splits["test"], by, options.seed)
    if options.sample < 1:
        splits["train"] = sample(splits["train"], options.sample, by, options.seed)
    if options.augment:
        splits["train"] = add_copies(splits["train"], options.augment)
    if not pq.ParquetFile(validated / "test.parquet").metadata.num_rows:  # there is no test file
        del splits["test"]
    return splits


def _texts(rows: DataFrame, split: str, rules: Collection[Cleaning]) -> DataFrame:
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


def _report(split: str, counts: dict[str, int]) -> None:
    log.info("%s: %d rows, %d tokens, %d partitions", split, counts["rows"], counts["tokens"], counts["partitions"])
    if counts["empty"]:
        log.warning("%s: %d rows have an empty sentence after cleaning; they are kept", split, counts["empty"])
