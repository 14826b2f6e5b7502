"""Preprocess: clean, sample, re-split and tokenise on Spark; one Arrow file a partition.

Files of a split lie in its folder, numbered in the order of `row`; what is in them is the type of
TokenisePartition's schema. Executors write them in place, so they need the artifact store under the driver's path.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.artifacts import Artifact
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput
from tasks.assets import encoder_folder, tokenizer_fingerprint
from tasks.context import Context, Outcome
from tasks.preprocess.clean import clean
from tasks.preprocess.sample import resplit, sample, stratum
from tasks.preprocess.tokenize import COUNTS, TokenisePartition
from tasks.spark import partitions, session, ship

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Changes when the tokenizer does."""
    return tokenizer_fingerprint(experiment.model.name, experiment.runtime.download)


def run(context: Context) -> Outcome:
    """Write a folder of token ids for each split; the result counts rows, tokens and cuts."""
    experiment = context.experiment
    tokenizer = encoder_folder(experiment.model.name, experiment.runtime.download) / "tokenizer.json"
    with session(experiment, "preprocess") as spark:
        shipped = ship(spark, tokenizer)
        counts = {}
        for name, rows in _splits(spark, experiment, context.inputs["validate"]).items():
            counts[name] = _tokenise(rows, experiment, shipped, context.output / name)
            _report(name, counts[name])
    return Outcome(_result(counts))


def _splits(spark: SparkSession, experiment: Experiment, validated: Artifact) -> dict[str, DataFrame]:
    options, by = experiment.preprocessing, stratum(experiment.task)
    splits = {name: spark.read.parquet(str(validated.path / f"{name}.parquet")) for name in ("train", "dev", "test")}
    if options.resplit:
        splits |= resplit(splits["train"], splits["dev"], splits["test"], by, options.seed)
    if options.sample < 1:
        splits["train"] = sample(splits["train"], options.sample, by, options.seed)
    return splits


def _tokenise(rows: DataFrame, experiment: Experiment, tokenizer: str, folder: Path) -> dict[str, int]:
    """Cut the rows into partitions by `row`, tokenise them, and add up what the partitions counted."""
    number = rows.count()
    if not number:
        raise BadInput(f"no rows are left for {folder.name}: give more data, or turn preprocessing.resplit off")
    folder.mkdir()
    options = experiment.preprocessing
    sentences = tuple(name for name in ("sentence1", "sentence2") if name in rows.columns)
    cleaned = [clean(F.col(name), options.clean).alias(name) for name in sentences]
    scores = experiment.task.kind == "regression"
    work = TokenisePartition(tokenizer, options.max_length, sentences, scores, str(folder))
    parts = (
        rows.repartitionByRange(partitions(number), "row")
        .sortWithinPartitions("row")
        .select("row", "label", *cleaned)
        .mapInArrow(work, ", ".join(f"{count} long" for count in COUNTS))
        .toArrow()
    )
    for leftover in folder.glob(".part-*"):  # of attempts that Spark gave up
        leftover.unlink()
    totals = {count: sum(parts[count].to_pylist()) for count in COUNTS}
    return totals | {"partitions": parts.num_rows}


def _report(split: str, counts: dict[str, int]) -> None:
    log.info("%s: %d rows, %d tokens, %d partitions", split, counts["rows"], counts["tokens"], counts["partitions"])
    if counts["empty"]:
        log.warning("%s: %d rows have an empty sentence after cleaning; they are kept", split, counts["empty"])


def _result(counts: dict[str, dict[str, int]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key in ("rows", "truncated", "empty", "partitions"):
        result[key] = {name: split[key] for name, split in counts.items()}
    result["mean_length"] = {name: round(split["tokens"] / split["rows"], 2) for name, split in counts.items()}
    return result
