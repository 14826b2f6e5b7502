"""Label the batches of a stream and commit them."""

from __future__ import annotations

import logging
import time
from functools import reduce
from operator import add
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from include.sections import Streaming
from include.stages import Transient
from tasks.encoder.loading import read_head
from tasks.inference.chosen_model import Model
from tasks.spark import keep_workers, place
from tasks.stages.labeling.stream.answering import Answering
from tasks.stages.labeling.stream.batches import CHECKPOINT, TALLY, Batches
from tasks.stages.labeling.stream.changes import Changes
from tasks.stages.labeling.stream.counted import Counted
from tasks.stages.labeling.stream.drift import close_windows
from tasks.stages.labeling.stream.heartbeat import Heartbeat
from tasks.stages.labeling.stream.label import LabelRows
from tasks.streaming.windows import Tally

log = logging.getLogger(__name__)

#: Seconds between two tasks that keep the Python workers of a stream without rows, which Spark ends after a minute.
KEEP_WORKERS = 30


class Labeler:
    """A function for DataStreamWriter.foreachBatch.

    Attributes:
        folder: the folder of the stream.
        heartbeat: the heartbeat of the stream.
        error: what went wrong, if anything; Spark's own error has it in its text only.

    Args:
        experiment: the experiment.
        run: the run.
        folder: the folder of the stream.
        heartbeat: the heartbeat of the stream.

    Raises:
        BadInput: if there is no model, or if it was trained on another number of texts.
        Transient: if MLflow does not answer.
    """

    def __init__(self, experiment: Experiment, run: Run, folder: Path, heartbeat: Heartbeat) -> None:
        self._experiment, self._run, self._batches = experiment, run.folder.name, Batches(folder)
        self._answering = Answering(experiment, run)
        self.folder, self.heartbeat = folder, heartbeat
        self.error: Exception | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Label the rows of a batch, unless a process that was killed has done so."""
        try:
            if not self._batches.committed(number):
                self._label(rows, number)
            close_windows(self._batches, self._experiment, self._run)
        except Exception as error:
            self.error = error
            raise

    def _label(self, rows: DataFrame, number: int) -> None:
        self.heartbeat.working()
        started, model = time.monotonic(), self._answering.model()
        with self._batches.writing(number) as folder:
            counted = self._counted(rows, model, folder)
            self._answering.check()
            manifest = {
                "batch": number, "run": self._run, "model_version": model.version, "form": model.trained.form,
                "model": model.trained.folder, "rows_in": counted.profile.rows + counted.reasons.total(),
                "rows": counted.profile.rows, "aside": counted.reasons.total(), "reasons": counted.reasons,
            }  # fmt: skip
            confidence = None if counted.profile.kind == "regression" else counted.confidence
            write_json(folder / TALLY, Tally(number, model.version, counted.profile, confidence).as_json())
            self._batches.commit(folder, manifest)
        self.heartbeat.committed(number, counted.profile.rows, counted.reasons.total(), model.version)
        seconds = time.monotonic() - started
        log.info("batch %d: %d rows, %d set aside, %.1f s", number, manifest["rows"], manifest["aside"], seconds)
        for reason, times in counted.reasons.most_common(3):
            log.warning("batch %d: %d rows set aside: %s", number, times, reason)

    def _counted(self, rows: DataFrame, model: Model, folder: Path) -> Counted:
        """Let Spark write the files of a batch into the folder."""
        streaming = self._experiment.streaming
        work = LabelRows(
            model.trained, model.version, streaming.texts, self._experiment.prediction, str(folder.absolute())
        )
        parts = [Counted.from_json(row.counted) for row in rows.mapInArrow(work, "counted string").collect()]
        counted = reduce(add, parts, Counted.nothing(read_head(Path(model.trained.folder)).kind))
        written = sum(pq.read_metadata(file).num_rows for file in folder.glob("part-*.parquet"))
        if written != counted.profile.rows:
            raise Transient(f"{counted.profile.rows} rows were labeled, but {written} written: try again")
        return counted


def follow(spark: SparkSession, rows: DataFrame, streaming: Streaming, labeler: Labeler, changes: Changes) -> None:
    """Label batch after batch, until there are no more rows, or for ever if the stream is continuous."""
    writer = rows.writeStream.foreachBatch(labeler).option("checkpointLocation", place(labeler.folder / CHECKPOINT))
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
