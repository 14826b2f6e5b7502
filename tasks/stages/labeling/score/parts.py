"""Score the table in parts: Spark turns each of them into a Parquet file with the predictions next to its columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from include.answers import MODEL_VERSION
from include.artifacts import sync
from include.experiment import Experiment
from include.sections import Prediction
from tasks.encoder.batching import Array
from tasks.inference.chosen_model import Model
from tasks.inference.progress import progress
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TrainedModel, worker_runner
from tasks.scoring.predictions import answer_columns, predict
from tasks.spark import partitions
from tasks.stages.labeling.score.table import ROWS, slice_of

log = logging.getLogger(__name__)


def part_file(folder: Path, part: int) -> Path:
    """Return the file of a scored part."""
    return folder / f"part-{part:05d}.parquet"


def score_parts(spark: SparkSession, experiment: Experiment, model: Model, kept: Path, rows: int) -> None:
    """Score the parts that are not in the folder `parts` yet."""
    folder, parts = (kept / "parts").absolute(), partitions(rows)
    folder.mkdir(exist_ok=True)
    missing = [part for part in range(parts) if not part_file(folder, part).exists()]
    log.info("scoring %d of %d parts with %s, %s", len(missing), parts, model.version, model.trained.form)
    if not missing:
        return
    done, table = spark.sparkContext.accumulator(0), str((kept / "table" / ROWS).absolute())
    texts, prediction = experiment.scoring.texts, experiment.prediction
    work = ScorePart(
        model.trained, model.version, table, texts, parts, tuple(missing), str(folder), prediction, done
    )  # fmt: skip
    with progress(lambda: done.value, rows):
        spark.range(0, len(missing), 1, len(missing)).mapInArrow(work, "part long").collect()


@dataclass(frozen=True)
class ScorePart:
    """Scores parts of a table; a function for DataFrame.mapInArrow.

    Attributes:
        model: The model.
        version: The version of the model, for the column MODEL_VERSION.
        table: The Arrow file with the rows.
        texts: The columns with the texts.
        parts: The number of parts that the rows are divided into.
        missing: The numbers of the parts to score.
        folder: The folder for the files of the parts.
        prediction: The experiment's prediction section, which determines the batches.
        done: Counts the scored rows for the driver.
    """

    model: TrainedModel
    version: str
    table: str
    texts: tuple[str, ...]
    parts: int
    missing: tuple[int, ...]
    folder: str
    prediction: Prediction
    done: Accumulator[int]

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a file for each of `missing` whose position is in the first column of the chunks. Yield the parts."""
        for chunk in chunks:
            parts = [self.missing[at] for at in chunk.column(0).to_pylist()]
            for part in parts:
                self._score(part)
            yield pa.RecordBatch.from_arrays([pa.array(parts, pa.int64())], ["part"])

    def _score(self, part: int) -> None:
        runner, rows = worker_runner(self.model, self.prediction), slice_of(Path(self.table), part, self.parts)
        file, task = part_file(Path(self.folder), part), TaskContext.get()
        assert task is not None  # only Spark calls this function, on executors
        # Each attempt, such as a speculative one, writes its own file, so that only complete files are renamed.
        attempt = file.with_name(f".{file.name}.{task.taskAttemptId()}")
        texts = zip(*(_values(rows, name) for name in self.texts), strict=True)
        writer, first = None, 0
        for logits in runner.logits(texts):
            scored = self._with_answers(rows.slice(first, len(logits)), logits, runner)
            writer = writer or pq.ParquetWriter(attempt, scored.schema)
            writer.write_table(scored)
            first += len(logits)
            self.done.add(len(logits))
        if writer is not None:
            writer.close()
            sync(attempt)
            attempt.replace(file)

    def _with_answers(self, rows: pa.Table, logits: Array, runner: Runner) -> pa.Table:
        head = runner.head
        predicted, probabilities = predict(head.kind, logits, head.thresholds)
        answers: dict[str, Any] = answer_columns(head.kind, head.label_names, predicted, probabilities)
        columns = {name: rows[name] for name in rows.column_names}
        return pa.table({**columns, **answers, MODEL_VERSION: pa.repeat(self.version, len(rows))})


def _values(rows: pa.Table, name: str) -> Iterator[str]:
    for chunk in rows[name].chunks:
        yield from chunk.to_pylist()
