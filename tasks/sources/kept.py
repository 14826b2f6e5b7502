"""Columns of the user's own test file that are copied next to its predictions (data.keep)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from include.stages import BadInput
from tasks.scoring.metrics import Array
from tasks.sources.formats import format_of
from tasks.sources.lines import read_header, read_rows
from tasks.sources.parquet import UserParquet
from tasks.sources.values import python_value


def kept_columns(path: Path, names: Sequence[str], rows: Array) -> pa.Table:
    """Read columns of a file at the given rows.

    Args:
        path: The test file. Columns of a Parquet file keep their types; those of a CSV or TSV file are text.
        names: The names of the columns.
        rows: The 0-based numbers of the data rows, in ascending order, [n].

    Returns:
        A table of n rows with the columns in the given order.

    Raises:
        BadInput: If a column is missing, exists twice, or cannot be written as CSV.
    """
    if format_of(path) == ".parquet":
        return _of_parquet(path, names).take(pa.array(rows))
    lines = read_rows(path)
    header = read_header(path, lines, ", ".join(names))
    places = [_place(path, header, name) for name in names]
    wanted = set(rows.tolist())
    fields = [line.fields for number, line in enumerate(lines) if number in wanted]
    return pa.table({name: [row[place] for row in fields] for name, place in zip(names, places, strict=True)})


def _of_parquet(path: Path, names: Sequence[str]) -> pa.Table:
    with UserParquet(path) as file:
        for name in names:
            _place(path, file.schema.names, name)
        table = pa.Table.from_batches(file.batches(names), pa.schema([file.schema.field(name) for name in names]))
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadInput(f"{path}: the columns of data.keep cannot be read ({error}): write the file again") from error
    for name in names:
        _check_writable(path, table.select([name]))
    return table


def _check_writable(path: Path, column: pa.Table) -> None:
    """Raise BadInput for a column, such as a list or bytes, that predict could not write after the training."""
    field = column.schema.field(0)
    try:
        csv.write_csv(column, pa.MockOutputStream())
        _check_dates(column[0])
    except pa.ArrowException as error:
        raise BadInput(
            f"{path}: data.keep names the column {field.name!r} of type {field.type}, which cannot be written as CSV "
            f"({error}): keep another column, or store this one as text"
        ) from error


def _check_dates(column: pa.ChunkedArray) -> None:
    """Raise ArrowInvalid for dates beyond the years 1 to 9999, of which Arrow writes others into a CSV file."""
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        for extreme in pc.min_max(column).values():
            if isinstance(found := python_value(extreme), str):
                raise pa.ArrowInvalid(f"{found} is not in the years 1 to 9999")


def _place(path: Path, header: list[str], name: str) -> int:
    if header.count(name) != 1:
        known = "two columns" if name in header else "no column"
        raise BadInput(
            f"{path} has {known} {name!r}, which data.keep names; found: {', '.join(header)[:200]}. "
            "data.keep must name columns of the test file"
        )
    return header.index(name)
