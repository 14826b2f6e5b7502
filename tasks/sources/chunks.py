"""Read the files of a table in chunks of rows, with their places in the file, and without losing a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from include.folders import check_file, user_path
from include.stages import BadInput
from tasks.sources.formats import format_of
from tasks.sources.limits import in_chunks
from tasks.sources.parquet import UserParquet
from tasks.sources.table import column_names, column_rows

FORMATS = (".csv", ".tsv", ".parquet", ".jsonl")


@dataclass(frozen=True)
class Unreadable:
    """A row that could not be read: its 1-based line or number in its file, the reason, and the row as it is."""

    place: int
    reason: str
    text: str


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file.

    Attributes:
        rows: The rows that could be read, with all columns of the file.
        places: Their 1-based lines or numbers in the file, [rows].
        unreadable: The others.
    """

    rows: pa.RecordBatch
    places: Sequence[int]
    unreadable: Sequence[Unreadable]


def table_files(source: str) -> list[Path]:
    """Return the files of the table that scoring.input names, in the order of their names.

    Empty files of a folder are parts without rows, unless all are empty.
    """
    path = user_path(source).absolute()  # a cluster's executors work in other folders
    if not path.is_dir():
        check_file(path, "correct scoring.input")
        files = [path]
    else:
        parts = sorted(file for file in path.iterdir() if file.is_file() and file.name[0] not in "._")
        files = [file for file in parts if file.stat().st_size] or parts
    suffixes = sorted({format_of(file) for file in files})
    if len(suffixes) != 1 or suffixes[0] not in FORMATS:
        found = ", ".join(suffix or "no suffix" for suffix in suffixes) or "no file"
        raise BadInput(
            f"{path}: the names of a table's files must all end in one of {', '.join(FORMATS)} (or .ndjson, which is "
            f".jsonl), but there is {found}"
        )
    return files


def text_chunks(file: Path, expected: str) -> Iterator[Chunk]:
    """Read a CSV or TSV file, whose columns are all text."""
    names = column_names(file, expected)
    check_names(file, names)
    for some in in_chunks(column_rows(file, names), lambda row: len(row.text)):
        good = [row for row in some if not row.problem]
        bad = [Unreadable(row.line, row.problem, row.text) for row in some if row.problem]
        columns = [pa.array([row.fields[at] for row in good], pa.string()) for at in range(len(names))]
        yield Chunk(pa.RecordBatch.from_arrays(columns, names), [row.line for row in good], bad)


def parquet_chunks(file: Path, first: int = 1) -> Iterator[Chunk]:
    """Read a Parquet file, whose first row has a number."""
    number = first
    with UserParquet(file) as opened:
        check_names(file, opened.schema.names)
        for batch in opened.batches():
            yield Chunk(batch, range(number, number + len(batch)), ())
            number += len(batch)


def check_names(file: Path, names: Sequence[str]) -> None:
    """Raise BadInput if two columns have the same name, or names that differ only in case."""
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            raise BadInput(f"{file} has the columns {seen[name.casefold()]!r} and {name!r}: rename one of them")
        seen[name.casefold()] = name
