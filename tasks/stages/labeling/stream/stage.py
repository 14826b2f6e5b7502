"""The stage stream: label rows as they arrive, each exactly once.

Spark's checkpoint in streams/NAME knows which rows belong to which batch; the folder of a batch appears with a single
rename. A process that is killed between the two finds the folder when Spark repeats the batch, and goes on.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from include.artifacts import locked
from include.sections import Streaming
from include.windows import in_short
from tasks.context import Context, Outcome
from tasks.spark import keep_workers, place, session
from tasks.stages.labeling.stream.batches import CHECKPOINT, Batches
from tasks.stages.labeling.stream.changes import Changes
from tasks.stages.labeling.stream.drift import closed
from tasks.stages.labeling.stream.heartbeat import Heartbeat
from tasks.stages.labeling.stream.labeler import Labeler
from tasks.stages.labeling.stream.source import open_source, remember

#: Seconds between two tasks that keep the Python workers of a stream without rows, which Spark ends after a minute.
KEEP_WORKERS = 30


def run(context: Context) -> Outcome:
    """Label what is there, or go on until the process is stopped. The result has the numbers of rows of this run."""
    experiment, streaming = context.experiment, context.experiment.streaming
    folder = context.run.store.root.parent / "streams" / streaming.name
    with locked(folder), Heartbeat(folder / "heartbeat.json") as heartbeat:
        remember(streaming, folder / "stream.json")
        labeler, changes = Labeler(experiment, context.run, folder, heartbeat), Changes(streaming, folder)
        with session(experiment, "stream") as spark:
            rows = open_source(spark, streaming, folder)
            _follow(spark, rows, streaming, folder / CHECKPOINT, labeler, changes)
    return Outcome(_result(context.run.folder.name, folder) | {"changed": changes.names})


def _follow(
    spark: SparkSession,
    rows: DataFrame,
    streaming: Streaming,
    checkpoint: Path,
    labeler: Labeler,
    changes: Changes,
) -> None:
    """Label batch after batch, until there are no more rows, or for ever."""
    writer = rows.writeStream.foreachBatch(labeler).option("checkpointLocation", place(checkpoint))
    if streaming.continuous:
        query = writer.trigger(processingTime=f"{streaming.interval} seconds").start()
    else:
        query = writer.trigger(availableNow=True).start()
    labeler.heartbeat.running()
    try:
        while not query.awaitTermination(KEEP_WORKERS):
            status = query.status
            if not (status["isTriggerActive"] and status["isDataAvailable"]):  # the tasks of a batch keep them, too
                keep_workers(spark)
            changes.look()
        changes.look()
    except StreamingQueryException:
        if labeler.error is not None:
            raise labeler.error from None
        raise


def _result(run: str, folder: Path) -> dict[str, Any]:
    """Return what the batches and windows of a run add up to."""
    batches = [manifest for manifest in Batches(folder).after(-1) if manifest["run"] == run]
    reasons: Counter[str] = sum((Counter(one["reasons"]) for one in batches), Counter())
    windows = [window for window in closed(folder) if window["run"] == run]
    return {
        "stream": folder.name,
        "folder": str(folder),
        "batches": len(batches),
        **{name: sum(one[name] for one in batches) for name in ("rows_in", "rows", "aside")},
        "reasons": dict(reasons),
        "model_versions": sorted({one["model_version"] for one in batches}),
        "windows": len(windows),
        "drift": [in_short(window) for window in windows if window["reasons"]],
    }
