"""The stage predict: predict the test split, and write predictions.parquet and predictions.csv.

Both files are sorted by `row`. Their columns are row, those of data.keep, and those of tasks/scoring/predictions.py.
Scores are not clipped to the task's range.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.answers import LABEL, PREDICTION, ROW
from include.glue import Task
from include.scratch import scratch_folder
from include.stages import BadInput
from tasks.context import Context, Outcome

log = logging.getLogger(__name__)


def run(context: Context) -> Outcome:
    """Write the predictions as Parquet, for programs, and as CSV, for people; nothing if there is no test split."""
    from tasks.encoder.batching import TokenTable
    from tasks.inference.labeler import Labeler
    from tasks.inference.parts import answered
    from tasks.inference.trained_model import TrainedModel
    from tasks.scoring.predictions import write_csv
    from tasks.stages.pipeline.predict.label import predict
    from tasks.workers import open_workers

    experiment, inputs = context.experiment, context.inputs
    split = inputs["preprocess"].path / "test"
    if not split.exists():
        log.warning("there is no test file, so nothing is predicted")
        return Outcome({"rows": 0, "files": {}})
    model = TrainedModel.of(inputs["package"].path, experiment.prediction)
    rows, parts = len(TokenTable.open(split).documents), len(list(split.glob("part-*.arrow")))
    log.info("predicting %d rows in %d partitions with %s", rows, parts, model.form)
    with (
        open_workers(experiment, "predict", rows) as workers,
        scratch_folder(context.output, "parts") as scratch,
    ):
        started = time.monotonic()
        labeler = Labeler.of(workers.staged, model, experiment.prediction)
        found = predict(workers, labeler, split, scratch)
        speed = rows / (time.monotonic() - started)
    table = _with_kept(inputs["validate"].path, found) if experiment.data.keep else found
    pq.write_table(table, context.output / "predictions.parquet")
    escape = experiment.prediction.escape_formulas
    write_csv(table, context.output / "predictions.csv", experiment.task.separator, escape)
    result: dict[str, Any] = {"rows": rows, "rows_per_second": round(speed, 1), "partitions": parts}
    result["form"] = model.form
    result |= answered([context.output / "predictions.parquet"], labeler.guard)
    result |= {} if labeler.guard is None else {"risk": labeler.guard.says()}
    result["files"] = {"predictions": "predictions.csv", "parquet": "predictions.parquet"}
    return Outcome(result | _summary(found, experiment.task))


def _with_kept(validate: Path, found: pa.Table) -> pa.Table:
    """Insert the kept columns. Raise BadInput if kept-test.parquet has other rows."""
    kept = pq.read_table(validate / "kept-test.parquet").sort_by(ROW)
    if not kept[ROW].equals(found[ROW]):
        raise BadInput(f"{validate / 'kept-test.parquet'} has other rows than the test split: run validate again")
    for field in found.drop_columns([ROW]).schema:
        kept = kept.append_column(field, found[field.name])
    return kept


def _summary(found: pa.Table, task: Task) -> dict[str, Any]:
    if task.kind == "regression":
        return {"score_mean": round(pc.mean(found[PREDICTION]).as_py(), 4)}
    labels = found[LABEL] if task.kind == "classification" else pc.list_flatten(found[PREDICTION])
    counts = Counter(labels.to_pylist())
    return {"label_counts": {label: counts[label] for label in task.label_names}}
