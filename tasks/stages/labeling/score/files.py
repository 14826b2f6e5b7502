"""The files of a scored table: Spark writes them in parts, which are joined, also in the format of a text table."""

from __future__ import annotations

import codecs
import logging
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from include.experiment import Experiment
from tasks.inference.chosen_model import Model
from tasks.inference.labeler import Labeler, progress, write_parquet
from tasks.scoring.predictions import sheet
from tasks.sources.json_row import written
from tasks.sources.table import table_files
from tasks.sources.text_files import format_of
from tasks.spark import partitions
from tasks.stages.labeling.score.table import ASIDE, ROWS, TEXT, slice_of

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
    labeler = Labeler(model.trained, experiment.prediction, model.version)
    work = _ScorePart(labeler, table, experiment.scoring.texts, parts, tuple(missing), str(folder), done)
    with progress(lambda: done.value, rows):
        spark.range(0, len(missing), 1, len(missing)).mapInArrow(work, "part long").collect()


@dataclass(frozen=True)
class _ScorePart:
    """Scores parts of a table; a function for DataFrame.mapInArrow."""

    labeler: Labeler
    table: str  # the Arrow file with the rows
    texts: tuple[str, ...]
    parts: int  # the number of parts that the rows are divided into
    missing: tuple[int, ...]  # the numbers of the parts to score
    folder: str  # for the files of the parts
    done: Accumulator[int]

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a file for each of `missing` whose position is in the first column of the chunks. Yield the parts."""
        for chunk in chunks:
            parts = [self.missing[at] for at in chunk.column(0).to_pylist()]
            for part in parts:
                write_parquet(self._scored(part), part_file(Path(self.folder), part))
            yield pa.RecordBatch.from_arrays([pa.array(parts, pa.int64())], ["part"])

    def _scored(self, part: int) -> Iterator[pa.Table]:
        rows = slice_of(Path(self.table), part, self.parts)
        columns = [chain.from_iterable(chunk.to_pylist() for chunk in rows[name].chunks) for name in self.texts]
        texts = zip(*columns, strict=True)
        for scored in self.labeler.label(rows, texts):
            yield scored
            self.done.add(len(scored))


def write_files(experiment: Experiment, kept: Path, output: Path) -> dict[str, str]:
    """Join the parts of the checkpoint in their order. Return the names of the files, as the result lists them."""
    shutil.copy(kept / "table" / ASIDE, output / ASIDE)
    files = {"parquet": "scored.parquet", "aside": ASIDE}
    parts = sorted((kept / "parts").glob("part-*.parquet"))
    with pq.ParquetWriter(output / "scored.parquet", pq.read_schema(parts[0])) as writer:
        for batch in _batches(parts):
            writer.write_batch(batch)
    first = None if experiment.scoring.is_database else table_files(experiment.scoring.input)[0]
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
        mark = table.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
    with file.open("wb") as stream:
        stream.write(codecs.BOM_UTF8 if mark else b"")
        with csv.CSVWriter(stream, schema) as writer:
            for batch in _batches(parts):
                writer.write_table(sheet(pa.table(batch), separator, escape))


def _batches(parts: list[Path]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from pq.ParquetFile(part).iter_batches()
