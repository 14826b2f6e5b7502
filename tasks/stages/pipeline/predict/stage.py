"""The stage predict: predict the test split on Spark, and write predictions.parquet and predictions.csv.

Both files are sorted by `row`. Their columns are row, those of data.keep, and those of tasks/scoring/predictions.py.
Scores are not clipped to the task's range.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from include.experiment import Experiment
from include.glue import Task
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable
from tasks.encoder.labels import from_column
from tasks.inference.progress import progress
from tasks.inference.trained_model import TrainedModel
from tasks.scoring.metrics import Array
from tasks.scoring.predictions import answer_columns, write_csv
from tasks.spark import partitions, session
from tasks.stages.pipeline.predict.label import SCHEMAS, LabelPartition

log = logging.getLogger(__name__)


def run(context: Context) -> Outcome:
    """Write the predictions as Parquet, for programs, and as CSV, for people; nothing if there is no test split."""
    experiment, inputs = context.experiment, context.inputs
    split = inputs["preprocess"].path / "test"
    if not split.exists():
        log.warning("there is no test file, so nothing is predicted")
        return Outcome({"rows": 0, "files": {}})
    model = TrainedModel.of(inputs["package"].path, experiment.prediction)
    rows = len(TokenTable.open(split).documents)
    log.info("predicting %d rows in %d partitions with %s", rows, partitions(rows), model.form)
    with session(experiment, "predict") as spark:
        started = time.monotonic()
        found = predict(spark, experiment, model, split, partitions(rows))
        speed = rows / (time.monotonic() - started)
    kept = _kept(inputs["validate"].path, found["row"]) if experiment.data.keep else {}
    table = pa.table({"row": found["row"], **kept, **_answers(experiment.task, found)})
    pq.write_table(table, context.output / "predictions.parquet")
    escape = experiment.prediction.escape_formulas
    write_csv(table, context.output / "predictions.csv", experiment.task.separator, escape)
    result: dict[str, Any] = {"rows": rows, "rows_per_second": round(speed, 1), "partitions": partitions(rows)}
    result["form"] = model.form
    result["files"] = {"predictions": "predictions.csv", "parquet": "predictions.parquet"}
    return Outcome(result | _summary(from_column(found["prediction"]), experiment.task))


def predict(spark: SparkSession, experiment: Experiment, model: TrainedModel, split: Path, parts: int) -> pa.Table:
    """Predict a split on Spark.

    The executors read the model in place, once per Python worker.

    Args:
        spark: The Spark session.
        experiment: The experiment.
        model: The model.
        split: The folder of the split.
        parts: The number of partitions.

    Returns:
        A table with the columns of SCHEMAS, sorted by row.
    """
    rows, done = len(TokenTable.open(split).documents), spark.sparkContext.accumulator(0)
    work = LabelPartition(model, str(split.absolute()), experiment.prediction, done)
    positions = spark.range(0, rows, 1, parts)
    with progress(lambda: done.value, rows):
        table = positions.mapInArrow(work, SCHEMAS[experiment.task.kind]).toArrow()
    return table.sort_by("row")


def _answers(task: Task, found: pa.Table) -> dict[str, Any]:
    probabilities = None
    if task.kind != "regression":
        probabilities = pc.list_flatten(found["probabilities"]).to_numpy().reshape(len(found), task.outputs)
    return answer_columns(task.kind, task.label_names, from_column(found["prediction"]), probabilities)


def _kept(validate: Path, rows: pa.ChunkedArray) -> dict[str, Any]:
    """Read the kept columns of these sorted rows. Raise BadInput if kept-test.parquet has other rows."""
    table = pq.read_table(validate / "kept-test.parquet").sort_by("row")
    if not np.array_equal(table["row"].to_numpy(), rows.to_numpy()):
        raise BadInput(f"{validate / 'kept-test.parquet'} has other rows than the test split: run validate again")
    return {name: table[name] for name in table.column_names if name != "row"}


def _summary(predicted: Array, task: Task) -> dict[str, Any]:
    """Return the mean score, or the number of rows for which each label is predicted."""
    if task.kind == "regression":
        return {"score_mean": round(float(predicted.mean()), 4)}
    counts = predicted.sum(axis=0) if task.kind == "multilabel" else np.bincount(predicted, minlength=task.outputs)
    return {"label_counts": dict(zip(task.label_names, counts.tolist(), strict=True))}
