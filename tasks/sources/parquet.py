"""Open the users' Parquet files. No other module does, so that all of them are read alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.stages import BadInput
from tasks.sources import limits
from tasks.sources.parts import Part
from tasks.sources.plain import as_plain, leaves, plain_field
from tasks.sources.text_files import check_file

_UNREADABLE = (pa.ArrowException, OSError)  # for a damaged page, pyarrow raises an OSError without an errno
_TEXTS = ("STRING", "NONE")  # the kinds of byte arrays that are texts or bytes
_SPARK = b"org.apache.spark.sql.parquet.row.metadata"  # the key of what Spark notes in all of its files
#: From this size on, a row group is read in batches of _CAREFUL rows: some may be far larger than the others.
_LARGE = 16  # times limits.BYTES
_CAREFUL = 16
_BYTES = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


class UserParquet:
    """A Parquet file of the user's, to be used in a `with` statement, or a part of it.

    Attributes:
        schema: has the types of the batches, for columns of INT96 as soon as these are asked for.
        groups: the number of rows and the size in bytes of each row group.
    """

    def __init__(self, path: Path, part: Part | None = None) -> None:
        if part is None:
            check_file(path)
        self._path, self._part = path, part or Part(path.open("rb"))
        self._stream = self._part.stream
        try:
            self._file, self.schema = _open(self._stream, "us")
        except _UNREADABLE as error:
            self._stream.close()
            raise _damaged(f"{path} is not a Parquet file", error) from error
        groups = map(self._file.metadata.row_group, range(self._file.num_row_groups))
        self.groups = [(int(group.num_rows), int(group.total_byte_size)) for group in groups]
        self._old = [leaf.path for leaf in _leaves(self._file.metadata) if leaf.physical_type == "INT96"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Return the rows in order, with these columns, each of which exists once, or with all columns."""
        starts = ("",) if columns is None else tuple(f"{name}." for name in columns)
        if old := [path for path in self._old if f"{path}.".startswith(starts)]:
            self._keep_nanoseconds(old)
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return self._read(self._file, columns, self._part, schema)

    def _read(
        self, file: pq.ParquetFile, columns: Sequence[str] | None, part: Part, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns as they are, or those of a schema with its types: "a.b" is also read as b within a."""
        number, names = part.before + 1, None if columns is None else list(columns)
        try:
            for group in range(file.num_row_groups)[part.start : part.stop]:
                rows = self._rows_at_a_time(*self.groups[group], number)
                for batch in file.iter_batches(rows, [group], names):  # one cannot have the dictionaries of two groups
                    for some in _in_slices(batch, self._path, number):
                        yield some if schema is None else _with_types(some, schema)
                        number += len(some)
        except _UNREADABLE as error:
            raise _damaged(f"{self._path}: the data from row {number} on cannot be read", error) from error

    def _rows_at_a_time(self, rows: int, size: int, first: int) -> int:
        """Return how many rows of a group may be in memory. Raise BadInput for rows that are too large on average."""
        rows = max(rows, 1)
        if size > limits.BYTES * rows:
            raise limits.too_large(self._path, f"row {first}", size // rows)
        most = _CAREFUL if size > _LARGE * limits.BYTES else limits.ROWS
        return min(most, limits.BYTES * rows // max(size, 1))

    def _keep_nanoseconds(self, columns: Sequence[str]) -> None:
        """Open the file again if some INT96 times have nanoseconds.

        Spark, Hive and Impala write times as INT96: a day and the nanoseconds in it. Arrow represents them as
        nanoseconds since 1970, which reach from 1677 to 2262 only and wrap without an error, or as microseconds.
        """
        exact, schema = _open(self._stream, "ns")
        rounded = wrapped = False
        whole = Part(self._stream)  # all parts must have the same types
        for pair in zip(self._read(self._file, columns, whole), self._read(exact, columns, whole), strict=True):
            for coarse, fine in zip(*map(_times, pair), strict=True):
                rounded = rounded or not coarse.cast(fine.type, safe=False).equals(fine)  # it wraps as INT96 does
                try:
                    coarse.cast(fine.type)
                except pa.ArrowInvalid:
                    wrapped = True
        if rounded and wrapped:
            raise BadInput(
                f"{self._path}: the INT96 columns {', '.join(columns)} have nanoseconds in some rows, and times before "
                "1677 or after 2262 in others, which no type of Arrow can represent together: write microseconds"
            )
        if rounded:
            self._file, self.schema = exact, schema


def _open(stream: BinaryIO, unit: str) -> tuple[pq.ParquetFile, pa.Schema]:
    """Open a file with INT96 in this unit. Return its columns with their types without dictionaries.

    Texts have dictionaries while they are read. INT96 does not say whether a time is in UTC, but those of Spark are.
    """
    plain = pq.ParquetFile(stream, coerce_int96_timestamp_unit="s")  # which no other column of a Parquet file has
    leaves = [leaf for leaf in _leaves(plain.metadata) if leaf.physical_type == "BYTE_ARRAY"]
    texts = [leaf.path for leaf in leaves if leaf.logical_type.type in _TEXTS]
    file = pq.ParquetFile(stream, metadata=plain.metadata, read_dictionary=texts, coerce_int96_timestamp_unit=unit)
    int96 = pa.timestamp(unit, "UTC" if _SPARK in (plain.metadata.metadata or {}) else None)
    return file, pa.schema([plain_field(field, int96) for field in plain.schema_arrow])


def _with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = (batch if batch.schema.names == schema.names else batch.select(schema.names)).columns
    arrays = [as_plain(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _times(batch: pa.RecordBatch) -> Iterator[pa.Array]:
    return (leaf for column in batch.columns for leaf in leaves(column))


def _leaves(metadata: pq.FileMetaData) -> list[pq.ColumnSchema]:
    return [metadata.schema.column(at) for at in range(metadata.num_columns)]


def _in_slices(batch: pa.RecordBatch, path: Path, first: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch, whose first row has the number `first`, in slices that are not too large without dictionaries."""
    size = sum(_size(leaf) for column in batch.columns for leaf in leaves(column))
    if size <= limits.BYTES:
        yield batch
    elif len(batch) == 1:
        raise limits.too_large(path, f"row {first}", size)
    else:
        half = len(batch) // 2
        for start, end in ((0, half), (half, len(batch))):
            part = batch.take(pa.array(range(start, end)))  # a slice would still have all values of its lists
            yield from _in_slices(part, path, first + start)


def _size(leaf: pa.Array) -> int:
    if pa.types.is_dictionary(leaf.type) and leaf.type.value_type in _BYTES:
        return pc.sum(pc.binary_length(leaf.dictionary).take(leaf.indices)).as_py() or 0
    return int(leaf.nbytes)


def _damaged(what: str, error: Exception) -> Exception:
    """Return a BadInput that describes the damage, or the error itself if the operating system raised it."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return BadInput(f"{what} ({' '.join(str(error).split())}): write the file again")  # in one line, as of Spark's jobs
