"""How much of a table is in memory at a time, whatever a file says: a few bytes of Parquet can stand for gigabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, AnyStr, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from include.stages import BadInput

T = TypeVar("T")
#: The largest number of rows in a chunk.
ROWS = 8192
#: The largest number of bytes, or characters, in a row, and in a chunk of several rows.
BYTES = 1 << 26
TOO_LARGE = f"a row may have {BYTES >> 20} MiB: shorten it, or leave out the columns that are so large"


def in_chunks(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield lists of items. Where the items end with an error, those before it come first."""
    some: list[T] = []
    total = 0
    try:
        for item in items:
            total += size(item)
            if some and (len(some) == ROWS or total > BYTES):
                yield some
                some, total = [], size(item)
            some.append(item)
    except Exception:
        if some:
            yield some
        raise
    if some:
        yield some


def lines(path: Path, stream: IO[AnyStr]) -> Iterator[AnyStr]:
    """Yield the lines of a stream. Raise BadInput if one is too long."""
    number = 0
    while line := stream.readline(BYTES + 1):
        number += 1
        if len(line) > BYTES:
            raise too_large(path, f"line {number}", len(line))
        yield line


def in_slices(batch: pa.RecordBatch, path: Path, first: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in slices that are not too large without their dictionaries.

    Args:
        batch: The batch.
        path: The file, for messages.
        first: The number of its first row.

    Raises:
        BadInput: If a single row is too large.
    """
    size = sum(map(_size, batch.columns))
    if size <= BYTES:
        yield batch
    elif len(batch) == 1:
        raise too_large(path, f"row {first}", size)
    else:
        half = len(batch) // 2
        for start, end in ((0, half), (half, len(batch))):
            part = batch.take(pa.array(range(start, end)))  # a slice would still have all values of its lists
            yield from in_slices(part, path, first + start)


def too_large(path: Path, place: str, size: int) -> BadInput:
    """Return the error for a row of this size."""
    return BadInput(f"{path}: {place} has {size >> 20} MiB or more: {TOO_LARGE}")


def _size(array: pa.Array) -> int:
    """Return the number of bytes that the values of an array have without dictionaries."""
    kind = array.type
    if pa.types.is_struct(kind):
        return sum(map(_size, array.flatten()))
    if pa.types.is_map(kind):  # which cannot be flattened
        first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return sum(_size(part.slice(first, end - first)) for part in (array.keys, array.items))
    if pa.types.is_nested(kind):
        return _size(array.flatten())
    if pa.types.is_dictionary(kind) and _is_bytes(kind.value_type):
        return pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0
    return int(array.nbytes)


def _is_bytes(kind: pa.DataType) -> bool:
    tests = pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary
    return any(matches(kind) for matches in tests)
