"""Label the batches of a stream with the champion or the model that is named, and commit them."""

from __future__ import annotations

import json
import logging
import time
from functools import lru_cache, reduce
from operator import add
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from include.artifacts import write_json
from include.experiment import Experiment
from include.fields.labeling import Streaming
from include.folders import user_path
from include.runs import Run
from include.stages import BadInput, StageError, Transient
from tasks.inference.chosen_model import Model, chosen, state_of
from tasks.inference.labeler import Labeler
from tasks.inference.parts import answered
from tasks.scoring.drift import Tally
from tasks.spark import keep_workers, place
from tasks.stages.labeling.stream.batches import CHECKPOINT, TALLY, Batches, close_windows
from tasks.stages.labeling.stream.heartbeat import Heartbeat
from tasks.stages.labeling.stream.label import LabelRows
from tasks.stages.labeling.stream.source import Changes
from tasks.staging import Staging, staging
from tasks.tracking.registry import CHAMPION, Registry

log = logging.getLogger(__name__)

#: Seconds between two tasks that keep the Python workers of a stream without rows, which Spark ends after a minute.
KEEP_WORKERS = 30


class Answering:
    """Follows the champion from batch to batch, unless the experiment names the folder of a model."""

    def __init__(self, experiment: Experiment, run: Run) -> None:
        self._experiment, self._run = experiment, run
        self._registry = None if experiment.streaming.model else Registry.of(experiment, run)
        self._number = self._champion()
        self._state = self._named_state()
        self._model = chosen(experiment, run, "streaming")

    def check(self) -> None:
        """Raise BadInput if the files of a named model have changed: Spark's workers load them whenever they start."""
        if self._named_state() != self._state:
            raise BadInput(
                f"{self._experiment.streaming.model} was changed while the stream labels with it, so it is not "
                "known which of the files have answered: give every model a folder of its own, name it as "
                "streaming.model, and start the stream again"
            )

    def model(self) -> Model:
        """Return the model for the next batch: the same one if MLflow does not answer, or a new one cannot be used."""
        number = self._number
        try:
            number = self._champion()
            if number != self._number:
                self._model = chosen(self._experiment, self._run, "streaming")
                self._number = number
                log.info("%s labels from now on", self._model.version)
        except StageError as error:
            log.error("%s goes on: %s", self._model.version, error)
            if isinstance(error, BadInput):  # otherwise MLflow is asked again with the next batch
                self._number = number
        return self._model

    def _named_state(self) -> dict[str, tuple[int, int]]:
        named = self._experiment.streaming.model
        return state_of(user_path(named).absolute()) if named else {}

    def _champion(self) -> str | None:
        """Return the number of the champion; None if there is none, or if a folder is named."""
        return None if self._registry is None else self._registry.aliases().get(CHAMPION)


class BatchLabeler:
    """A function for DataStreamWriter.foreachBatch. Spark's error has only the text of its `error`."""

    def __init__(self, experiment: Experiment, run: Run, folder: Path, heartbeat: Heartbeat, staged: Staging) -> None:
        self._experiment, self._run, self._batches = experiment, run.folder.name, Batches(folder)
        self._answering, self._staged = Answering(experiment, run), staged
        self._shared = lru_cache(maxsize=1)(self._share)
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
            tally = self._tally(rows, number, model, folder)
            self._answering.check()
            labeled, aside = tally.profile.rows, tally.reasons.total()
            manifest = {
                "batch": number, "run": self._run, "model_version": model.version, "form": model.trained.form,
                "model": model.trained.folder, "rows_in": labeled + aside, "rows": labeled, "aside": aside,
                "reasons": tally.reasons,
            }  # fmt: skip
            manifest |= answered(folder.glob("part-*.parquet"), self._shared(model).guard)
            write_json(folder / TALLY, tally.as_json())
            self._batches.commit(folder, manifest)
        self.heartbeat.committed(number, labeled, aside, model.version)
        seconds = time.monotonic() - started
        log.info("batch %d: %d rows, %d set aside, %.1f s", number, labeled, aside, seconds)
        for reason, times in tally.reasons.most_common(3):
            log.warning("batch %d: %d rows set aside: %s", number, times, reason)

    def _tally(self, rows: DataFrame, number: int, model: Model, folder: Path) -> Tally:
        labeler = self._shared(model)
        with staging(rows.sparkSession) as staged:  # of its own, which does not keep the files of all batches
            work = LabelRows(labeler, number, self._experiment.streaming.texts, staged.address_of(folder))
            parts = [Tally.from_json(json.loads(row.tally)) for row in rows.mapInArrow(work, "tally string").collect()]
            staged.collect(folder)
        none = Tally.nothing(number, model.version, labeler.head.kind)
        tally = reduce(add, parts, none)  # a batch may have no parts
        written = sum(pq.read_metadata(file).num_rows for file in folder.glob("part-*.parquet"))
        if written != tally.profile.rows:
            raise Transient(f"{tally.profile.rows} rows were labeled, but {written} written: try again")
        return tally

    def _share(self, model: Model) -> Labeler:
        return Labeler.of(self._staged, model.trained, self._experiment.prediction, model.version)


def follow(spark: SparkSession, rows: DataFrame, streaming: Streaming, labeler: BatchLabeler, changes: Changes) -> None:
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
            if not (status["isTriggerActive"] and status["isDataAvailable"]):  # the tasks of a batch also keep them
                keep_workers(spark)
            changes.look()
        changes.look()
    except StreamingQueryException:
        if labeler.error is not None:
            raise labeler.error from None
        raise
