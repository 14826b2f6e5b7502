"""Columns of the user's own files that are copied next to their predictions (data.keep)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from include.stages import BadInput
from tasks.sources import Source
from tasks.sources.files import named
from tasks.sources.parquet import UserParquet
from tasks.sources.table import check_column, column_rows, common_columns
from tasks.sources.text_files import BLANK, PLAIN, Dialect, format_of


def write_kept(names: Sequence[str], source: Source, output: Path) -> None:
    """Write kept-SPLIT.parquet for evaluate and predict: the columns of data.keep with the number of each row."""
    for split in {"dev", "test"} & set(source.splits):
        rows = pq.read_table(output / f"{split}.parquet", columns=["row"])["row"]
        partial = split == "dev" and "test" in source.splits
        files = source.files[split]
        with named(files[0], source.file(split)) if source.version else nullcontext():  # it is a copy of a table
            kept = kept_columns(files, names, rows.to_numpy(), source.dialect, partial)
        table = pa.table({"row": rows})
        for field in kept.schema:  # dev may have none of the columns
            table = table.append_column(field, kept[field.name])
        pq.write_table(table, output / f"kept-{split}.parquet")


def kept_columns(
    files: Sequence[Path],
    names: Sequence[str],
    rows: npt.NDArray[np.int64],
    dialect: Dialect = PLAIN,
    partial: bool = False,
) -> pa.Table:
    """Return columns of a split's files at some rows, [n], ascending. Those of Parquet keep their types.

    A `partial` split may lack some of the columns, which are then left out.
    """
    header = common_columns(files, ", ".join(names), dialect)
    names = [name for name in names if name in header or not partial]
    for name in names:
        check_column(files[0], header, name, ", which data.keep names", "data.keep must name columns of the file")
    if format_of(files[0]) == ".parquet":
        return _of_parquet(files, names).take(pa.array(rows))
    wanted = set(rows.tolist())
    of_files = ((file, row) for file in files for row in column_rows(file, names, dialect) if row.problem != BLANK)
    found = [pair for number, pair in enumerate(of_files) if number in wanted]
    if wrong := next(((file, row) for file, row in found if row.problem), None):
        file, row = wrong
        raise BadInput(
            f"{file} line {row.line}: the columns of data.keep ({', '.join(names)}) cannot be read "
            f"({row.problem}): correct the line, or keep other columns"
        )
    return pa.table({name: [row.fields[place] for _, row in found] for place, name in enumerate(names)})


def _of_parquet(files: Sequence[Path], names: Sequence[str]) -> pa.Table:
    tables = {file: _of_file(file, names) for file in files}
    try:
        return pa.concat_tables(tables.values(), promote_options="default")  # a column of nulls may have no other type
    except pa.ArrowException as error:
        raise BadInput(
            f"{files[0]}: the columns of data.keep have other types in other files of the table ({error}): write all "
            "files with the same types"
        ) from error


def _of_file(path: Path, names: Sequence[str]) -> pa.Table:
    with UserParquet(path) as file:
        table = pa.Table.from_batches(file.batches(names), pa.schema([file.schema.field(name) for name in names]))
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadInput(f"{path}: the columns of data.keep cannot be read ({error}): write the file again") from error
    return table
