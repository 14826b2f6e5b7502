"""The files of a scored table: workers write them in parts, which are joined, also in the format of a text table."""

from __future__ import annotations

import codecs
import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from include.experiment import Experiment
from tasks.inference.chosen_model import Model
from tasks.inference.labeler import Labeler
from tasks.inference.parts import part_file, write_parts
from tasks.scoring.predictions import sheet
from tasks.sources.compression import unpacked
from tasks.sources.json_row import written
from tasks.sources.text_files import format_of
from tasks.stages.labeling.score.table import ASIDE, ROWS, TEXT, Rows, scored_files
from tasks.workers import open_workers, partitions

log = logging.getLogger(__name__)


def score_parts(experiment: Experiment, model: Model, kept: Path, rows: int) -> None:
    """Score the parts of a table with this many rows that are not in the folder `parts` yet."""
    folder, parts = kept / "parts", partitions(rows)
    folder.mkdir(exist_ok=True)
    missing = [part for part in range(parts) if not part_file(folder, part).exists()]
    log.info("scoring %d of %d parts with %s, %s", len(missing), parts, model.version, model.trained.form)
    if not missing:
        return
    with open_workers(experiment, "score", rows * len(missing) // parts) as workers:
        table = Rows.of(workers.staged, kept / "table" / ROWS)
        explain = experiment.scoring.explain
        labeler = Labeler.of(workers.staged, model.trained, experiment.prediction, model.version, explain)
        write_parts(workers, _ScorePart(labeler, table, experiment.scoring.texts, parts), missing, folder)


@dataclass(frozen=True)
class _ScorePart:
    """Scores one of the `parts` into which the rows of a table are divided."""

    labeler: Labeler
    table: Rows
    texts: tuple[str, ...]
    parts: int

    def __call__(self, number: int) -> Iterator[pa.Table]:
        return self.labeler.label(self.table.part(number, self.parts), self.texts)


def write_files(experiment: Experiment, kept: Path, output: Path) -> dict[str, str]:
    """Join the parts of the checkpoint in their order. Return the names of the files, as the result lists them."""
    shutil.copy(kept / "table" / ASIDE, output / ASIDE)
    files = {"parquet": "scored.parquet", "aside": ASIDE}
    parts = sorted((kept / "parts").glob("part-*.parquet"))
    with pq.ParquetWriter(output / "scored.parquet", pq.read_schema(parts[0])) as writer:
        for batch in _batches(parts):
            writer.write_batch(batch)
    first = next(iter(scored_files(experiment.scoring)), None)
    if first is not None and format_of(first) in TEXT:
        files["scored"] = "scored.csv"
        _write_csv(experiment, parts, first, output / "scored.csv")
    elif first is not None and format_of(first) == ".jsonl":
        files["scored"] = "scored.jsonl"
        with (output / "scored.jsonl").open("w", encoding="utf-8") as stream:
            for batch in _batches(parts):
                stream.writelines(written(row) + "\n" for row in batch.to_pylist())
    return files


def _write_csv(experiment: Experiment, parts: list[Path], first: Path, file: Path) -> None:
    """Write a sheet, with a byte order mark if the first file of the table has one: some spreadsheets need it."""
    separator, escape = experiment.data.label_separator, experiment.prediction.escape_formulas
    schema = sheet(pq.read_schema(parts[0]).empty_table(), separator, escape).schema
    with first.open("rb") as table:
        mark = unpacked(first, table).read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
    with file.open("wb") as stream:
        stream.write(codecs.BOM_UTF8 if mark else b"")
        with csv.CSVWriter(stream, schema) as writer:
            for batch in _batches(parts):
                writer.write_table(sheet(pa.table(batch), separator, escape))


def _batches(parts: list[Path]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from pq.ParquetFile(part).iter_batches()
