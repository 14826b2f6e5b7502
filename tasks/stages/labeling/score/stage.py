"""The stage score: write the rows of a table with the predictions of a model, as Parquet and in the table's format.

The rows without a text are set aside in aside.jsonl, and the stage checks that no row is lost. First the table is taken
in, which fixes its rows and their order; then Spark scores it in parts. Both are kept as checkpoints, so that a run
that was killed goes on with the parts that it lacks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from include.artifacts import locked
from include.experiment import Experiment
from include.scratch import scratch_folder
from include.sections import Scoring
from include.stages import Transient
from tasks.context import Context, Outcome
from tasks.encoder.loading import read_head
from tasks.inference.chosen_model import Model
from tasks.inference.progress import progress
from tasks.sources.chunks import Chunk, parquet_chunks, table_files, text_chunks
from tasks.sources.formats import format_of
from tasks.spark import partitions, session
from tasks.stages.labeling.score.database import database_chunks, driver
from tasks.stages.labeling.score.files import TEXT, write_files
from tasks.stages.labeling.score.fingerprint import digest_of
from tasks.stages.labeling.score.json_lines import json_chunks
from tasks.stages.labeling.score.label import ScorePart, part_file
from tasks.stages.labeling.score.table import ROWS, Counts, take_in

log = logging.getLogger(__name__)


def run(context: Context) -> Outcome:
    """Score the table. The result has the numbers of rows, and of those set aside by reason."""
    assert context.manifest is not None and context.checkpoints is not None  # set by the runner
    experiment, kept = context.experiment, context.checkpoints
    found = json.loads(context.manifest.fingerprint)
    model = Model.from_json(found["model"])
    with locked(kept), session(experiment, "score", *driver(experiment.scoring)) as spark:
        if not (kept / "table").exists():
            _take_in(spark, experiment, model, kept, found["table"])
        counts = Counts.read(kept / "table")
        _score(spark, experiment, model, kept, counts.rows)
    files = write_files(experiment, kept, context.output)
    written = pq.ParquetFile(context.output / files["parquet"]).metadata.num_rows
    if written != counts.rows or written + counts.aside != counts.rows_in:
        raise Transient(f"{counts.rows_in} rows went in, {written} were scored and {counts.aside} set aside: try again")
    log.info("%d rows in, %d scored, %d set aside", counts.rows_in, written, counts.aside)
    result: dict[str, Any] = {"rows_in": counts.rows_in, "rows": written, "aside": counts.aside}
    result |= {"reasons": counts.reasons, "model_version": model.version, "form": model.trained.form, "files": files}
    return Outcome(result)


def _take_in(spark: SparkSession, experiment: Experiment, model: Model, kept: Path, digest: str) -> None:
    """Write the folder `table` with a single rename."""
    scoring, head = experiment.scoring, read_head(Path(model.trained.folder))
    with scratch_folder(kept, ".table") as folder:
        (folder / "table").mkdir()
        chunks = _chunks(spark, experiment, folder / "spark")
        try:
            counts = take_in(chunks, scoring.texts, head, folder / "table")
        finally:  # a file that is still being copied is malformed, too
            _check_unchanged(scoring, digest)
        (folder / "table").rename(kept / "table")
    log.info("%d rows: %d to score, %d set aside %s", counts.rows_in, counts.rows, counts.aside, counts.reasons or "")


def _check_unchanged(scoring: Scoring, digest: str) -> None:
    """Raise Transient if the table has not been the same since its digest became part of the artifact's key."""
    if not scoring.is_database and digest_of(table_files(scoring.input)) != digest:
        raise Transient(f"{scoring.input} was changed while it was read, so nothing was kept: run score again")


def _chunks(spark: SparkSession, experiment: Experiment, folder: Path) -> Iterator[tuple[str, Chunk]]:
    """Yield the name of a file, or of a database's table, and some of its rows."""
    scoring = experiment.scoring
    files = [] if scoring.is_database else table_files(scoring.input)
    kind = format_of(files[0]) if files else ""
    if kind in TEXT:
        for file in files:
            yield from ((str(file), chunk) for chunk in text_chunks(file, ", ".join(scoring.texts)))
    elif kind == ".parquet":
        for file in files:
            yield from ((str(file), chunk) for chunk in parquet_chunks(file))
    elif files:
        yield from json_chunks(files, scoring.texts)
    else:
        yield from ((scoring.table, chunk) for chunk in database_chunks(spark, scoring, folder))


def _score(spark: SparkSession, experiment: Experiment, model: Model, kept: Path, rows: int) -> None:
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
