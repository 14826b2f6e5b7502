"""The files of a scored table: Parquet for every one, and CSV or JSON Lines for a table that came as such."""

from __future__ import annotations

import codecs
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from include.experiment import Experiment
from tasks.scoring.predictions import sheet
from tasks.sources.json_row import written
from tasks.sources.table import table_files
from tasks.sources.text_files import format_of
from tasks.stages.labeling.score.table import ASIDE, TEXT


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
