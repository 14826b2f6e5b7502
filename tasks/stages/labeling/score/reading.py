"""Take in the table: read its files or the database, and write the rows to score and those that are set aside."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from include.artifacts import sha256
from include.experiment import Experiment
from include.scratch import scratch_folder
from include.stages import Transient
from tasks.encoder.loading import read_head
from tasks.inference.chosen_model import Model
from tasks.sources.chunks import Chunk, parquet_chunks, table_files, text_chunks
from tasks.sources.formats import format_of
from tasks.stages.labeling.score.database import database_chunks
from tasks.stages.labeling.score.files import TEXT
from tasks.stages.labeling.score.json_lines import json_chunks
from tasks.stages.labeling.score.table import take_in

log = logging.getLogger(__name__)


def table_digest(source: str) -> str:
    """Return a digest of the files of the table that scoring.input names."""
    digests = [f"{format_of(file)} {sha256(file)}" for file in table_files(source)]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def read_table(spark: SparkSession, experiment: Experiment, model: Model, digest: str, kept: Path) -> None:
    """Write the folder `table` of the checkpoints with a single rename.

    Raises:
        BadInput: If no row can be scored.
        Transient: If the files no longer have the digest that is part of the artifact's key.
    """
    scoring, head = experiment.scoring, read_head(Path(model.trained.folder))
    with scratch_folder(kept, ".table") as folder:
        (folder / "table").mkdir()
        try:
            counts = take_in(_chunks(spark, experiment, folder / "spark"), scoring.texts, head, folder / "table")
        finally:  # a file that is still being copied is malformed, too
            if not scoring.is_database and table_digest(scoring.input) != digest:
                raise Transient(f"{scoring.input} was changed while it was read, so nothing was kept: run score again")
        (folder / "table").rename(kept / "table")
    log.info("%d rows: %d to score, %d set aside %s", counts.rows_in, counts.rows, counts.aside, counts.reasons or "")


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
