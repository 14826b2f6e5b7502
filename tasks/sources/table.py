"""Read the users' tables, whatever the format: columns as rows of texts, or all columns in chunks of Arrow."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from include import folders, tables
from include.fields.data import COMPRESSIONS, FORMATS
from include.stages import BadInput
from include.text import is_unwritable, seen
from tasks.sources.compression import unpacked
from tasks.sources.json_row import read_lines
from tasks.sources.limits import in_chunks
from tasks.sources.parquet import UserParquet
from tasks.sources.parts import Part
from tasks.sources.text_files import PLAIN, Dialect, Row, format_of, nul_problem, read_header, read_rows, undecodable
from tasks.sources.values import is_text, python_value

_LINES = 1000  # of a file of JSON Lines, whose names are those of its columns
_SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file."""

    rows: pa.RecordBatch  # those that could be read, with all columns of the file
    places: Sequence[int]  # their 1-based lines or numbers in the file, [rows]
    unreadable: Sequence[Row]  # the others, which have no fields


def column_names(path: Path, expected: str, dialect: Dialect = PLAIN) -> list[str]:
    """Return the columns of a file, of JSON Lines those in its first lines. Messages name those that are `expected`."""
    match format_of(path):
        case ".parquet":
            with UserParquet(path) as file:
                return list(file.schema.names)
        case ".jsonl":
            return list(dict.fromkeys(name for line in islice(read_lines(path), _LINES) for name in line.values))
        case _:
            return read_header(path, read_rows(path, dialect), expected)


def common_columns(files: Sequence[Path], expected: str, dialect: Dialect = PLAIN) -> list[str]:
    """Return the columns of the files of a table, which all have the same; of JSON Lines those that any of them has."""
    first = column_names(files[0], expected, dialect)
    others = {file: column_names(file, expected, dialect) for file in files[1:]}
    if format_of(files[0]) == ".jsonl":
        return list(dict.fromkeys([*first, *chain.from_iterable(others.values())]))
    for file, names in others.items():
        if names != first:
            only = sorted({*names} ^ {*first})
            differs = f"only one of them has {', '.join(map(repr, only))[:200]}" if only else "their order differs"
            raise BadInput(
                f"{file} has other columns than {files[0]}, with which it is one table ({differs}): correct the file, "
                "or take it out of the table"
            )
    return first


def column_rows(
    path: Path,
    names: Sequence[str],
    dialect: Dialect = PLAIN,
    texts: Sequence[str] = (),
    part: Part | None = None,
) -> Iterator[Row]:
    """Yield all rows of a file, or of a part of it, with the fields of these columns, in the given order, as texts.

    Each column exists once; a row of JSON Lines may lack it. In a file with types, `texts` must be columns of texts.
    What is missing, or NaN, is "". A list is written as JSON.
    """
    match format_of(path):
        case ".parquet":
            yield from _parquet_rows(path, names, texts, part)
        case ".jsonl":
            yield from _json_rows(path, names, texts, part)
        case _:
            rows = read_rows(path, dialect, part)
            header = read_header(path, rows, ", ".join(names))
            places = [header.index(name) for name in names]
            for row in rows:
                yield selected(row, places, len(header))


def selected(row: Row, places: Sequence[int], width: int) -> Row:
    """Return a row with only the fields at these places, or without fields if it should have had another number."""
    problem = row.problem
    if not problem and len(row.fields) != width:
        problem = f"wrong number of fields: {len(row.fields)} instead of {width}"
    return Row(row.line, [] if problem else [row.fields[place] for place in places], problem, row.text)


def check_column(path: Path, header: Sequence[str], name: str, role: str, remedy: str) -> None:
    """Raise BadInput unless the header of the user's own file has the column once."""
    if header.count(name) != 1:
        known = "two columns" if name in header else "no column"
        found = found_columns(header, [name], remedy, ", or name the character between columns in data.delimiter")
        raise BadInput(f"{path} has {known} {name!r}{role}; found: {found}")


def check_text(file: str, name: str, kind: pa.DataType) -> None:
    """Raise BadInput unless a column has texts. One without any value has no other type in pandas' files."""
    if not is_text(kind) and not pa.types.is_null(kind):
        raise BadInput(
            f"{file}: the column {name!r} has the type {kind}, but it must be text: name another column, or write "
            "this one as text"
        )


def found_columns(header: Sequence[str], wanted: Sequence[str], remedy: str, separated: str = "") -> str:
    """Return the columns of a file for a message, the cause that they show, and the remedy.

    If another character separates the columns, the remedy is to use the usual one, or `separated` (", or ...").
    """
    names = [name if name.isprintable() and name == name.strip() and name else ascii(name) for name in header]
    found = ", ".join(names)[:200]
    if kind := next((kind for mark, kind in _SEPARATORS.items() if len(header) == 1 and mark in header[0]), ""):
        separated = f"use commas in a .csv file, tabs in a .tsv file{separated}"
        return f"{found} (its columns seem to be separated by {kind}: {separated})"
    for name, other in ((name, other) for name in wanted for other in header if other != name):
        if other.strip(" ") == name.strip(" "):
            found += f" ({other!a} has blanks around the name: remove them in the file, or name the column with them)"
            break
        if seen(other) == seen(name):
            found += f" ({other!a} differs from {name!a} in invisible characters only: type the name again)"
            break
    return f"{found}. {remedy}"


def table_files(source: str) -> list[Path]:
    """Return the files of the table that scoring.input names, all of one format, in the order of their names."""
    path = folders.user_path(source).absolute()  # a cluster's executors work in other folders
    if (files := tables.files_of(path)) == [path]:
        folders.check_file(path, "correct scoring.input")
    return same_format(path, files)


def same_format(path: Path, files: Sequence[Path]) -> list[Path]:
    """Return the files of a table, which a path names, without empty ones. Raise BadInput if their formats differ."""
    if tables.is_delta(tables.fixed_part(path)):  # of which the files also have the rows that were deleted
        raise BadInput(f"{path} is a Delta table: write data.source: delta, and its folder as data.path")
    suffixes = sorted({format_of(file) for file in files})
    if len(suffixes) != 1 or suffixes[0] not in FORMATS:
        found = ", ".join(suffix or "no suffix" for suffix in suffixes) or "no file"
        raise BadInput(
            f"{path}: the names of a table's files must all end in one of {', '.join(FORMATS)} (.ndjson is "
            f".jsonl; {' or '.join(COMPRESSIONS)} may follow the end of a text), but there is {found}"
        )
    if odd := next((file for file in files if is_unwritable(str(file))), None):
        raise BadInput(f"{str(odd)!a}: the name is not UTF-8: rename the file")
    filled = [file for file in files if len(files) == 1 or _is_filled(file)]
    return filled or list(files)  # an empty one is a part without rows


def _is_filled(file: Path) -> bool:
    with file.open("rb") as stream:
        return bool(unpacked(file, stream).read(1))


def chunks(file: Path, expected: str) -> Iterator[Chunk]:
    """Read a Parquet, CSV or TSV file. `expected` names the columns that the latter, all text, should have."""
    if format_of(file) == ".parquet":
        yield from parquet_chunks(file)
        return
    names = column_names(file, expected)
    check_names(file, names)
    for some in in_chunks(column_rows(file, names), lambda row: len(row.text)):
        good = [row for row in some if not row.problem]
        columns = [pa.array([row.fields[at] for row in good], pa.string()) for at in range(len(names))]
        bad = [row for row in some if row.problem]
        yield Chunk(pa.RecordBatch.from_arrays(columns, names), [row.line for row in good], bad)


def parquet_chunks(file: Path, first: int = 1) -> Iterator[Chunk]:
    """Read a Parquet file, whose first row has the number `first`."""
    number = first
    with UserParquet(file) as opened:
        check_names(file, opened.schema.names)
        for batch in opened.batches():
            yield Chunk(batch, range(number, number + len(batch)), ())
            number += len(batch)


def check_names(file: Path, names: Sequence[str]) -> None:
    """Raise BadInput if two columns have the same name, or names that differ only in case."""
    known: dict[str, str] = {}
    for name in names:
        if name.casefold() in known:
            raise BadInput(f"{file} has the columns {known[name.casefold()]!r} and {name!r}: rename one of them")
        known[name.casefold()] = name


def _json_rows(path: Path, names: Sequence[str], texts: Sequence[str], part: Part | None) -> Iterator[Row]:
    for line in read_lines(path, part):
        values = {name: line.values.get(name) for name in names}
        wrong = (name for name in names if name in texts and not isinstance(values[name], str | None))
        fields = [_json_text(value) for value in values.values()]
        problem = line.problem or next((f"{name!r} is not text" for name in wrong), "") or nul_problem("".join(fields))
        yield Row(line.number, [] if problem else fields, problem, line.text.strip())


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | list | dict) else _as_text(value)


def _parquet_rows(path: Path, names: Sequence[str], texts: Sequence[str], part: Part | None) -> Iterator[Row]:
    number = part.before if part else 0
    with UserParquet(path, part) as file:
        kinds = {name: file.schema.field(name).type for name in texts}
        for batch in file.batches(names):
            for name in texts:  # without rows, they are of any type
                check_text(str(path), name, kinds[name])
            for at in range(len(batch)):
                number += 1
                yield _typed_row(number, [column[at] for column in batch.columns])


def _typed_row(number: int, values: list[pa.Scalar]) -> Row:
    try:
        fields = [_as_text(python_value(value)) for value in values]
    except UnicodeDecodeError as error:  # Parquet does not check its texts
        shown = "\t".join(_as_text(python_value(value, "replace")) for value in values)
        return Row(number, [], undecodable(error.object[error.start]), shown)
    text = "\t".join(fields)
    return Row(number, fields, nul_problem(text), text)


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return json.dumps([_as_text(one) for one in value], ensure_ascii=False)
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if missing else str(value)
