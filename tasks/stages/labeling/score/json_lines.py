"""Read files of JSON Lines in their order: each line is a row, and the type of a column fits the values of all rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from include.stages import BadInput
from tasks.sources import limits
from tasks.sources.json_row import read_lines
from tasks.sources.table import Chunk, check_names
from tasks.sources.text_files import Row

_DEEPEST = 32  # levels of arrays and objects that become types; what is nested deeper becomes text
_FIELDS = 256  # of an object; more are keys of a map rather than fields, and become text
_COLUMNS = 2000
_EXACT = 2**53  # doubles represent all integers up to this one
_TYPES = (
    (pa.bool_(), {"boolean"}),
    (pa.int64(), {"integer", "long integer"}),
    (pa.float64(), {"integer", "number"}),
    (pa.string(), {"text"}),
)


def json_chunks(files: Sequence[Path], texts: Sequence[str]) -> Iterator[tuple[str, Chunk]]:
    """Yield the name of a file and some of its rows. Blank lines are no rows.

    The columns are the names that occur in any row, in the order in which they first occur. A row without one of them
    has null there. A column whose values have different types contains text: texts as they are, and everything else as
    JSON. Integers and other numbers together are doubles, if these can represent the integers.

    The files are read twice: first for the types of the columns.
    """
    shapes: dict[str, _Shape] = {}
    for file in files:
        for line in read_lines(file):
            for name, value in line.values.items():
                shapes.setdefault(name, _Shape()).add(value)
            if len(shapes) > _COLUMNS:
                raise BadInput(
                    f"{file}: the objects up to line {line.number} have more than {_COLUMNS:,} different names, each a "
                    "column: put what is no column of its own into an object or array within the row"
                )
        check_names(file, list(shapes))
    types = {name: shape.type() for name, shape in shapes.items()} or dict.fromkeys(texts, pa.string())
    for file in files:
        for some in limits.in_chunks(read_lines(file), lambda line: len(line.data)):
            good = [line for line in some if not line.problem]
            bad = [Row(line.number, [], line.problem, line.text) for line in some if line.problem]
            columns = [_column([line.values.get(name) for line in good], kind) for name, kind in types.items()]
            rows = pa.RecordBatch.from_arrays(columns, list(types))
            yield str(file), Chunk(rows, [line.number for line in good], bad)


@dataclass(slots=True)
class _Shape:
    """The kinds of the values in one place: in a column, in the arrays of a column, or in a field of its objects."""

    kinds: set[str] = field(default_factory=set)
    items: _Shape | None = None
    fields: dict[str, _Shape] = field(default_factory=dict)

    def add(self, value: Any, depth: int = 0) -> None:
        """Note a value as the module json reads it."""
        if value is None:
            return
        kind = _kind(value) if depth <= _DEEPEST else "too deep"
        self.kinds.add(kind)
        if kind == "array":
            self.items = self.items or _Shape()
            for item in value:
                self.items.add(item, depth + 1)
        elif kind == "object":
            for name, item in value.items():
                self.fields.setdefault(name, _Shape()).add(item, depth + 1)
            if len(self.fields) > _FIELDS:
                self.kinds.add("map")
                self.fields.clear()

    def type(self) -> pa.DataType | None:
        """Return the type that all values have, null if there are none; None if they have no type in common."""
        if not self.kinds:
            return pa.null()
        if self.kinds == {"array"}:
            assert self.items is not None
            items = self.items.type()
            return None if items is None else pa.list_(items)
        if self.kinds == {"object"}:
            fields = {name: shape.type() for name, shape in self.fields.items()}
            # Parquet has no type for objects without fields, and Spark none for fields that differ only in case.
            distinct = len({name.casefold() for name in fields}) == len(fields)
            return pa.struct(fields) if fields and distinct and None not in fields.values() else None
        return next((one for one, kinds in _TYPES if self.kinds <= kinds), None)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if abs(value) <= _EXACT:
            return "integer"
        return "long integer" if -(2**63) <= value < 2**63 else "huge integer"
    kinds = {str: "text", float: "number", list: "array", dict: "object"}
    return kinds[type(value)]


def _column(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    if kind is not None:
        return pa.array(values, pa.string() if kind == pa.null() else kind)
    written = [one if one is None or isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in values]
    return pa.array(written, pa.string())
