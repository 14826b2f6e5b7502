"""How much of a table is in memory at a time, whatever a file says: a few bytes of Parquet can stand for gigabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, AnyStr, TypeVar

from include.stages import BadInput

T = TypeVar("T")
ROWS = 8192  # the largest number of rows in a chunk
BYTES = 1 << 26  # the largest number of bytes, or characters, in a row, and in a chunk of several rows
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


def lines(path: Path, stream: IO[AnyStr], before: int = 0) -> Iterator[AnyStr]:
    """Yield the lines of a stream, of a file with `before` others. Raise BadInput if one is too long."""
    number = before
    while line := stream.readline(BYTES + 1):
        number += 1
        if len(line) > BYTES:
            raise too_large(path, f"line {number}", len(line))
        yield line


def too_large(path: Path, place: str, size: int) -> BadInput:
    """Return the error for a row of this size."""
    return BadInput(f"{path}: {place} has {size >> 20} MiB or more: {TOO_LARGE}")
