"""Predict: the test split on Spark's executors; predictions.parquet in the order of `row`."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable
from tasks.predict.label import LabelPartition
from tasks.predict.progress import progress
from tasks.spark import partitions, session


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Nothing is read from outside the store."""
    return ""


def run(context: Context) -> Outcome:
    """Write predictions.parquet: row, prediction (class id or unclipped score), probability (null for a score)."""
    experiment = context.experiment
    model, split = context.inputs["train"].path / "model", context.inputs["preprocess"].path / "test"
    rows = len(TokenTable.open(split))
    with session(experiment, "predict") as spark:
        started = time.monotonic()
        predictions = predict(spark, experiment, model, split, partitions(rows))
        speed = rows / (time.monotonic() - started)
    pq.write_table(predictions, context.output / "predictions.parquet")
    counted = {"rows": rows, "rows_per_second": round(speed, 1), "partitions": partitions(rows)}
    return Outcome(counted | _summary(predictions["prediction"], experiment))


def predict(spark: SparkSession, experiment: Experiment, model: Path, split: Path, parts: int) -> pa.Table:
    """The predictions of a split, sorted by row; executors read the model in place, once a Python worker."""
    rows, done = len(TokenTable.open(split)), spark.sparkContext.accumulator(0)
    work = LabelPartition(str(model.absolute()), str(split.absolute()), experiment.prediction, done)
    kind = "double" if experiment.task.kind == "regression" else "long"
    positions = spark.range(0, rows, 1, parts)
    with progress(lambda: done.value, rows):
        table = positions.mapInArrow(work, f"row long, prediction {kind}, probability double").toArrow()
    return table.sort_by("row")


def _summary(predictions: pa.ChunkedArray, experiment: Experiment) -> dict[str, Any]:
    if experiment.task.kind == "regression":
        return {"score_mean": round(pc.mean(predictions).as_py(), 4)}
    counts = Counter(predictions.to_pylist())
    return {"label_counts": {name: counts[label] for label, name in enumerate(experiment.task.label_names)}}
