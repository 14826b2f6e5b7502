"""The stage preprocess: clean, sample, re-split, augment and tokenize on Spark, with one Arrow file per partition.

The files of a split are in its folder and are numbered in the order of `row`. TokenizePartition defines their schema.
The executors write the files in place, so they need the artifact store under the same path as the driver.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.artifacts import Artifact
from include.experiment import Experiment
from include.sections import Cleaning
from include.stages import BadInput
from tasks.assets import encoder_folder
from tasks.context import Context, Outcome
from tasks.encoder.labels import TYPES
from tasks.encoder.tokens import open_tokenizer
from tasks.spark import partitions, read_parquet, session, ship
from tasks.stages.pipeline.preprocess.augment import add_copies, augmentation
from tasks.stages.pipeline.preprocess.clean import cleaned
from tasks.stages.pipeline.preprocess.sample import resplit, sample, stratum
from tasks.stages.pipeline.preprocess.tokenize import COUNTS, TokenizePartition

log = logging.getLogger(__name__)


def run(context: Context) -> Outcome:
    """Write a folder of token ids for each split. The result counts rows, their windows, and truncated rows.

    There is no folder for test if it has no rows.
    """
    experiment = context.experiment
    encoder = encoder_folder(experiment.model.name, experiment.runtime)
    tokenizer, options = encoder / "tokenizer.json", experiment.preprocessing
    # What is wrong is reported before Spark starts.
    open_tokenizer(tokenizer, options.max_length, options.window_stride)
    if experiment.model.kind in ("encoder", "frozen") and not _surely_fits(encoder, options.max_length):
        from tasks.encoder.loading import check_encoder  # torch takes seconds to import

        check_encoder(encoder, options.max_length)
    with session(experiment, "preprocess") as spark:
        shipped = ship(spark, tokenizer)
        augment = augmentation(spark, experiment, tokenizer) if experiment.preprocessing.augment else None
        counts = {}
        for name, rows in _splits(spark, experiment, context.inputs["validate"]).items():
            texts = _texts(rows, name, experiment.preprocessing.clean)
            if augment is not None and name == "train":
                texts = texts.mapInArrow(augment, texts.schema)
            counts[name] = _tokenize(texts, experiment, shipped, context.output / name)
            _report(name, counts[name])
    return Outcome(_result(counts, windows=options.long == "windows"))


def _surely_fits(encoder: Path, max_length: int) -> bool:
    """Return whether the encoder has more positions than its inputs and what a family may put before them need."""
    try:
        config = json.loads((encoder / "config.json").read_bytes())
        config = config.get("encoder", config)
        limit = config.get("max_position_embeddings")
        # RoBERTa and similar encoders count positions from the padding id plus 1.
        return limit is None or bool(limit > max_length + (config.get("pad_token_id") or 0))
    except (ValueError, AttributeError, TypeError):
        return False  # check_encoder says what is wrong


def _splits(spark: SparkSession, experiment: Experiment, validated: Artifact) -> dict[str, DataFrame]:
    options, by = experiment.preprocessing, stratum(experiment.task)
    splits = {name: read_parquet(spark, validated.path / f"{name}.parquet") for name in ("train", "dev", "test")}
    if options.resplit:
        splits |= resplit(splits["train"], splits["dev"], splits["test"], by, options.seed)
    if options.sample < 1:
        splits["train"] = sample(splits["train"], options.sample, by, options.seed)
    if options.augment:
        splits["train"] = add_copies(splits["train"], options.augment)
    if not pq.ParquetFile(validated.path / "test.parquet").metadata.num_rows:  # there is no test file
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


def _result(counts: dict[str, dict[str, int]], windows: bool) -> dict[str, Any]:
    """Return the counts of all splits, by count and split, and the mean length of an input in tokens."""
    result: dict[str, Any] = {}
    for key in ("rows", *(("windows",) if windows else ()), "truncated", "empty", "partitions"):
        result[key] = {name: split[key] for name, split in counts.items()}
    result["mean_length"] = {name: round(split["tokens"] / split["windows"], 2) for name, split in counts.items()}
    return result
