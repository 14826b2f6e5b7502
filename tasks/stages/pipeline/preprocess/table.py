"""The rows of validate's tables by their positions, which executors read from the Parquet files of these tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.staging import Staging, below, opened

_BATCH = 10_000  # rows


@dataclass(frozen=True)
class Part:
    """One file of a table, in which `shift` is added to the row numbers."""

    address: str
    rows: int
    shift: int = 0

    def read(self, start: int, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows at the positions start..stop of the file. Only row groups with some of them are read."""
        with opened(self.address) as stream, pq.ParquetFile(stream) as file:
            end = 0
            for group in range(file.num_row_groups):
                first, end = end, end + file.metadata.row_group(group).num_rows
                if end <= start or first >= stop:
                    continue
                for batch in file.iter_batches(_BATCH, [group], list(columns)):
                    low, high = max(start - first, 0), min(stop - first, len(batch))
                    if low < high:
                        yield self._numbered(batch.slice(low, high - low))
                    first += len(batch)

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        place = batch.schema.get_field_index("row")
        return batch.set_column(place, batch.schema.field(place), pc.add(batch.column(place), self.shift))


@dataclass(frozen=True)
class Table:
    """The rows of some files, one file after the other. Their positions start from 0, and their numbers ascend."""

    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return sum(part.rows for part in self.parts)

    def read(self, start: int, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows at the positions start..stop with these columns, the first of which is `row`."""
        first = 0
        for part in self.parts:
            if start < first + part.rows and first < stop:
                yield from part.read(max(start - first, 0), min(stop - first, part.rows), columns)
            first += part.rows

    def followed_by(self, other: Table, shift: int) -> Table:
        """Return the rows of this table, and then those of another with `shift` added to their numbers."""
        return Table(self.parts + tuple(replace(part, shift=part.shift + shift) for part in other.parts))


def share_table(staged: Staging, folder: Path) -> Table:
    """Share a folder of Parquet files with the executors, and return its rows."""
    address, files = staged.share(folder), sorted(folder.glob("part-*.parquet"))
    return Table(tuple(Part(below(address, file.name), pq.read_metadata(file).num_rows) for file in files))
