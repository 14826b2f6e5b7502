"""Read columns of the users' files as rows of texts, whatever the format, and say what is wrong with their headers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from include.stages import BadInput
from include.text import seen
from tasks.sources.formats import check_file, format_of, nul_problem, undecodable
from tasks.sources.json_row import read_lines
from tasks.sources.lines import PLAIN, Dialect, Row, read_header, read_rows
from tasks.sources.parquet import UserParquet
from tasks.sources.values import is_text, python_value

_LINES = 1000  # of a file of JSON Lines, whose names are those of its columns
_SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}


def column_names(path: Path, expected: str, dialect: Dialect = PLAIN) -> list[str]:
    """Return the names of a file's columns; of JSON Lines those that occur in its first lines."""
    match format_of(path):
        case ".parquet":
            check_file(path)
            with UserParquet(path) as file:
                return list(file.schema.names)
        case ".jsonl":
            check_file(path)
            return list(dict.fromkeys(name for line in islice(read_lines(path), _LINES) for name in line.values))
        case _:
            return read_header(path, read_rows(path, dialect), expected)


def column_rows(path: Path, names: Sequence[str], dialect: Dialect = PLAIN, texts: Sequence[str] = ()) -> Iterator[Row]:
    """Yield all rows of a file with the fields of these columns, in the given order, as texts.

    What is missing, or NaN, is "". A list is written as JSON.

    Args:
        path: The file.
        names: The columns, each of which exists once, unless in JSON Lines, where a row may lack it.
        dialect: How a text file is written.
        texts: The columns that must be texts in a file with types.
    """
    match format_of(path):
        case ".parquet":
            yield from _parquet_rows(path, names, texts)
        case ".jsonl":
            yield from _json_rows(path, names, texts)
        case _:
            rows = read_rows(path, dialect)
            header = read_header(path, rows, ", ".join(names))
            places = [header.index(name) for name in names]
            for row in rows:
                yield _selected(row, places, len(header))


def check_column(path: Path, header: Sequence[str], name: str, role: str, remedy: str) -> None:
    """Raise BadInput unless the header of the user's own file has the column once.

    Args:
        path: The file.
        header: The names of its columns.
        name: The name of the column.
        role: What it is for, such as " for the role label".
        remedy: What to write instead.
    """
    if header.count(name) != 1:
        known = "two columns" if name in header else "no column"
        found = found_instead(header, name, remedy, ", or name the character between columns in data.delimiter")
        raise BadInput(f"{path} has {known} {name!r}{role}; {found}")


def found_instead(header: Sequence[str], wanted: str, remedy: str, separated: str = "") -> str:
    """Return what a header has in place of a column, and one remedy: that of the likely reason, or else the given one.

    Blanks and invisible characters at the ends of names are made visible. `separated` is what else to do about columns
    that are separated by another character, as ", or ...".
    """
    names = [name if name.isprintable() and name == name.strip() and name else ascii(name) for name in header]
    reason = hint(header, [wanted], separated)
    return f"found: {', '.join(names)[:200]}{reason or '.'} {'' if reason else remedy}".rstrip()


def hint(header: Sequence[str], wanted: Sequence[str], separated: str = "") -> str:
    """Return why the header seems to lack one of the wanted names, as " (...: remedy)"; "" if nothing is unusual."""
    if len(header) == 1:
        for separator, name in _SEPARATORS.items():
            if separator in header[0]:
                remedy = f"use commas in a .csv file, tabs in a .tsv file{separated}"
                return f" (its columns seem to be separated by {name}: {remedy})"
    for name in wanted:
        for found in header:
            if found != name and found.strip(" ") == name.strip(" "):
                return f" ({found!a} has blanks around the name: remove them in the file, or write them here)"
            if found != name and seen(found) == seen(name):
                return f" ({found!a} differs from {name!a} in invisible characters only: type the name again)"
    return ""


def _selected(row: Row, places: Sequence[int], width: int) -> Row:
    problem = row.problem
    if not problem and len(row.fields) != width:
        problem = f"wrong number of fields: {len(row.fields)} instead of {width}"
    return Row(row.line, [] if problem else [row.fields[place] for place in places], problem, row.text)


def _json_rows(path: Path, names: Sequence[str], texts: Sequence[str]) -> Iterator[Row]:
    for line in read_lines(path):
        values = [line.values.get(name) for name in names]
        wrong = [
            f"{name!r} is not text"
            for name, value in zip(names, values, strict=True)
            if name in texts and not (value is None or isinstance(value, str))
        ]
        fields = [_json_text(value) for value in values]
        problem = line.problem or next(iter(wrong), "") or nul_problem("".join(fields))
        yield Row(line.number, [] if problem else fields, problem, line.data.decode("utf-8", "replace").strip())


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | list | dict) else _as_text(value)


def _parquet_rows(path: Path, names: Sequence[str], texts: Sequence[str]) -> Iterator[Row]:
    number = 0
    with UserParquet(path) as file:
        for name in texts:
            kind = file.schema.field(name).type
            if not is_text(kind):
                raise BadInput(f"{path}: the column {name!r} has the type {kind}, but it must be text")
        for batch in file.batches(names):
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
