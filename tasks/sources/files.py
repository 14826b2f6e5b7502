"""The user's own CSV, TSV or Parquet files, with a mapping of column names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from include.glue import SPLITS, Task
from include.paths import user_path
from include.sections import Data
from include.stages import BadInput
from tasks.sources.base import Columns, Record, Source
from tasks.sources.encoding import undecodable
from tasks.sources.formats import format_of
from tasks.sources.header import hint
from tasks.sources.lines import Row, check_file, nul_problem, read_header, read_rows
from tasks.sources.parquet import UserParquet
from tasks.sources.values import is_text, python_value

FORMATS = (".csv", ".tsv", ".parquet")


class OwnFiles(Source):
    """Three files below data.path. Columns that have no role in the task are not read.

    Args:
        data: The experiment's data section, which names the folder, the files and the columns.
        task: The task, which defines the roles of the columns.
        folder: The folder, if it is not data.path as it is.

    Raises:
        BadInput: If a file name does not end in one of FORMATS.
    """

    def __init__(self, data: Data, task: Task, folder: Path | None = None) -> None:
        root = folder or user_path(data.path)
        super().__init__({split: root / getattr(data, split) for split in SPLITS})
        for path in self.paths.values():
            if format_of(path) not in FORMATS:
                raise BadInput(f"{path}: the format is unknown; the file name must end in {', '.join(FORMATS)}")
        self.separator = task.separator
        columns = {str(role): name for role, name in data.columns.items()}
        self.names = {role: columns.get(role, role) for role in (*task.sentences, "label")}

    def records(self, split: str) -> Iterator[Record]:
        """Yield the rows of the split's file. The test file needs no label column."""
        path = self.paths[split]
        names = {role: name for role, name in self.names.items() if role != "label" or split != "test"}
        if format_of(path) == ".parquet":
            check_file(path)
            rows, header = _parquet_rows(path, names, self.separator), list(names.values())
        else:
            rows = read_rows(path)
            header = read_header(path, rows, ", ".join(names.values()))
        return self.to_records(rows, _columns(path, header, names), split)


def _columns(path: Path, header: list[str], names: dict[str, str]) -> Columns:
    positions = {role: _position(path, header, role, name) for role, name in names.items()}
    label = positions.pop("label", None)
    return Columns(len(header), tuple(positions.values()), label)


def _position(path: Path, header: list[str], role: str, name: str) -> int:
    if header.count(name) != 1:
        known = "two columns" if name in header else "no column"
        raise BadInput(
            f"{path} has {known} {name!r} for the role {role}; found: {', '.join(header)[:200]}"
            f"{hint(header, [name])}. Name the column in data.columns, as {{{role!r}: 'column name'}}"
        )
    return header.index(name)


def _parquet_rows(path: Path, names: dict[str, str], separator: str) -> Iterator[Row]:
    """Yield the columns of the roles, in their order, with all values as text. The separator joins those of lists."""
    number = 0
    with UserParquet(path) as file:
        for role, name in names.items():
            kind = file.schema.field(_position(path, file.schema.names, role, name)).type
            if role != "label" and not is_text(kind):
                raise BadInput(f"{path}: the column {name!r} has the type {kind}, but {role} must be text")
        for batch in file.batches(list(names.values())):
            for at in range(len(batch)):
                number += 1
                yield _row(number, [column[at] for column in batch.columns], separator)


def _row(number: int, values: list[pa.Scalar], separator: str) -> Row:
    try:
        fields = [_as_text(python_value(value), separator) for value in values]
    except UnicodeDecodeError as error:  # Parquet does not check its texts
        shown = "\t".join(_as_text(python_value(value, "replace"), separator) for value in values)
        return Row(number, [], undecodable(error.object[error.start]), shown)
    text = "\t".join(fields)
    return Row(number, fields, nul_problem(text), text)


def _as_text(value: Any, separator: str) -> str:
    if isinstance(value, list):
        return separator.join(_as_text(one, separator) for one in value)
    return "" if value is None else str(value)
