"""Values that a database has written as text, in the types of their columns where these hold them exactly."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from tasks.sources.chunks import Chunk, parquet_chunks

log = logging.getLogger(__name__)


def exact_chunks(parts: Sequence[Path], kinds: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
    """Yield the rows of a table, numbered from 1.

    A column stays text if its type does not hold all of its values exactly: a number with more digits or NaN, a date
    like `infinity` or before the year 1, a time of day.

    Args:
        parts: The Parquet files of the table in their order. They are read twice: first for the types of the columns.
        kinds: The types that columns of text should have.
    """
    found = dict(kinds)
    for chunk in _chunks(parts):
        for name, kind in list(found.items()):
            try:
                _converted(chunk.rows.column(name), kind)
            except (pa.ArrowInvalid, ArithmeticError) as error:
                log.warning("the column %s is text, because %s does not hold all of its values: %s", name, kind, error)
                del found[name]
    for chunk in _chunks(parts):
        rows = chunk.rows
        for name, kind in found.items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, _converted(rows.column(name), kind))
        yield Chunk(rows, chunk.places, chunk.unreadable)


def _chunks(parts: Sequence[Path]) -> Iterator[Chunk]:
    first = 1
    for part in parts:
        for chunk in parquet_chunks(part, first):
            first += len(chunk.rows)
            yield chunk


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(kind):
        return column.cast(kind)
    # Arrow's cast lets numbers with too many digits wrap.
    return pa.array([None if text is None else Decimal(text) for text in column.to_pylist()], kind)
