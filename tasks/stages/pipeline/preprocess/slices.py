"""Cut the rows of a split into the partitions of about 5,000 rows, and their copies, that executors tokenize."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.stages.pipeline.preprocess.selection import Mask
from tasks.stages.pipeline.preprocess.table import Table
from tasks.staging import below
from tasks.workers import partitions

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Some of the rows at the positions start..stop of a table.

    Attributes:
        start: the first position.
        stop: the position after the last one.
        chosen: bits that say which of these rows belong to the piece; b"" if all do.
        shift: added to the row numbers, which are then those of copies; 0 for the rows themselves.
    """

    start: int
    stop: int
    chosen: bytes
    shift: int

    def read(self, table: Table, columns: Sequence[str]) -> pa.Table:
        """Return the rows with these columns, the first of which is `row`."""
        rows = pa.Table.from_batches(self._batches(table, columns))
        place = rows.schema.get_field_index("row")
        return rows.set_column(place, rows.schema.field(place), pc.add(rows["row"], self.shift))

    def _batches(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        chosen = pa.array(np.unpackbits(np.frombuffer(self.chosen, np.uint8)).astype(np.bool_))
        first = 0
        for batch in table.read(self.start, self.stop, columns):
            yield batch.filter(chosen.slice(first, len(batch))) if self.chosen else batch
            first += len(batch)


@dataclass(frozen=True)
class Slice:
    """The rows of one partition, whose token ids become a file.

    Attributes:
        file: the address of the file.
        table: the table that has the rows.
        pieces: of the table, one after the other.
    """

    file: str
    table: Table
    pieces: tuple[Piece, ...]


def cut(table: Table, chosen: Mask | None, shifts: Sequence[int], folder: str) -> list[Slice]:
    """Cut the rows of a split into slices, whose files are in a folder with this address.

    Args:
        table: the rows.
        chosen: whether a row belongs to the split, [rows]; None if all do.
        shifts: what is added to the row numbers: the rows come once for each of them.
        folder: the address.
    """
    places = range(len(table)) if chosen is None else np.flatnonzero(chosen)
    total = len(places) * len(shifts)
    bounds = [total * number // partitions(total) for number in range(partitions(total) + 1)]
    return [
        Slice(below(folder, f"part-{number:05d}.arrow"), table, tuple(_pieces(places, chosen, shifts, *ends)))
        for number, ends in enumerate(pairwise(bounds))
    ]


def _pieces(
    places: range | Places, chosen: Mask | None, shifts: Sequence[int], start: int, stop: int
) -> Iterator[Piece]:
    """Yield the pieces of the rows start..stop, counted over all copies."""
    for shift in shifts:
        low, high = max(start, 0), min(stop, len(places))
        if low < high:
            first, end = int(places[low]), int(places[high - 1]) + 1
            yield Piece(first, end, b"" if chosen is None else np.packbits(chosen[first:end]).tobytes(), shift)
        start, stop = start - len(places), stop - len(places)
