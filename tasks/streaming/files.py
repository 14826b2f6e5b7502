"""The rows of the files in a folder as a source of Spark: each file is read once, in the order in which it appeared.

Spark's own source of files forgets files that are older than the newest one it has seen by a week, and takes a file
while it is still being copied. This one notes every file in a log before Spark hears of it, and an offset is a number
of lines in that log, so that a batch that is repeated has the same files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from include.datasets import is_finished
from include.folders import Dropped
from include.stages import BadInput
from tasks.sources import limits
from tasks.sources.chunks import FORMATS, Chunk, parquet_chunks, text_chunks
from tasks.sources.encoding import undecodable
from tasks.sources.formats import format_of
from tasks.sources.json_row import decoding_problem, written
from tasks.sources.lines import check_file
from tasks.sources.values import python_value
from tasks.streaming.rows import ARROW, SCHEMA


class FileSource(DataSource):
    """The source.

    Its options are `folder`, the folder; `log`, the file that notes what was found; `settle`, the seconds for which a
    file must not have changed; `files`, the largest number of files per batch; and `partitions`, that of partitions.

    A file whose time lies in the future tells nothing about how long it has not changed. It is read once the source has
    seen it unchanged for so long.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name under which Spark knows the source."""
        return "spark-bert-files"

    def schema(self) -> str:
        """Return the columns."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> FileReader:
        """Return the reader."""
        return FileReader(self.options)


@dataclass
class Files(InputPartition):
    """The files that one task reads."""

    paths: Sequence[str]

    def __post_init__(self) -> None:
        super().__init__(self.paths)


class FileReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the log has between two offsets, {"files": number of lines}."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._folder, self._log = Dropped(options["folder"]), Path(options["log"])
        self._settle, self._files = float(options["settle"]), int(options["files"])
        self._partitions = int(options["partitions"])
        self._target: int | None = None
        self._names: list[str] | None = None
        self._ahead: dict[str, tuple[tuple[int, int], float]] = {}  # size and time of a file, and since when

    def initialOffset(self) -> dict[str, int]:
        """Return where a new stream begins."""
        return {"files": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a batch may have."""
        return ReadMaxFiles(self._files)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no files but those that are there now."""
        names = self._look()
        if self._ahead:  # nobody looks again
            time.sleep(self._settle)
            names = self._look()
        self._target = len(names)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the end of the next batch, after looking for new files."""
        end = len(self._look()) if self._target is None else self._target
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else end
        return {"files": max(start["files"], min(end, start["files"] + most))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the files between two offsets, dealt out to the partitions."""
        names = self._known()
        earlier = set(names[: start["files"]])  # a process that was killed, and the one after it, may both note a file
        new = dict.fromkeys(name for name in names[start["files"] : end["files"]] if name not in earlier)
        paths = [str(self._folder / name) for name in new]
        return [Files(paths[at :: self._partitions]) for at in range(min(self._partitions, len(paths)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the partition's files."""
        assert isinstance(partition, Files)
        for path in partition.paths:
            yield from rows(Dropped(path))

    def _look(self) -> list[str]:
        """Note new files in the log. Return the names of all."""
        known = self._known()
        found = self._settled(set(known))
        if found:
            with self._log.open("ab") as stream:
                stream.write(b"".join(json.dumps(name).encode() + b"\n" for name in found))
                stream.flush()
                os.fsync(stream.fileno())
        known += found
        return known

    def _settled(self, known: set[str]) -> list[str]:
        """Return the names of the new finished files, the oldest first."""
        found = []
        try:
            files = [file for file in self._folder.iterdir() if file.name not in known and is_finished(file)]
        except FileNotFoundError as error:
            raise BadInput(f"there is no folder {self._folder}: make it, or correct streaming.folder") from error
        for file in files:
            try:
                status = file.stat()
            except FileNotFoundError:  # it was moved away in this moment
                continue
            if self._age(file.name, status) >= self._settle:
                found.append((status.st_mtime_ns, file.name))
                self._ahead.pop(file.name, None)
        return [name for _, name in sorted(found)]

    def _age(self, name: str, status: os.stat_result) -> float:
        """Return for how many seconds a file has not changed, as far as is known."""
        age = (time.time_ns() - status.st_mtime_ns) / 1e9
        if age >= 0:
            return age
        state, now = (status.st_size, status.st_mtime_ns), time.monotonic()
        if self._ahead.get(name, (None,))[0] != state:
            self._ahead[name] = state, now
        return now - self._ahead[name][1]

    def _known(self) -> list[str]:
        """Return the names in the log, which only this process extends while it lives."""
        if self._names is None:
            self._names = read_log(self._log)
        return self._names


def read_log(file: Path) -> list[str]:
    """Return the names in a log, and cut off what a killed process has left of a line."""
    if not file.exists():
        return []
    data = file.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(file, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def rows(file: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file.

    Where a file cannot be read, a row at that place says why, so that the stream goes on with the next file.

    Raises:
        OSError: If the disk or the network failed. The file may be sound, so its batch has to be repeated.
    """
    at, place = None, 0
    try:
        at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        for places, texts, problems in _read(file):
            yield _batch(file.name, places, at, texts, problems)
            place = max(places, default=place)  # those of unreadable rows come last
    except (BadInput, FileNotFoundError, PermissionError) as error:
        why = str(error).replace(str(file), "the file")  # reasons are counted, and the row has the name of the file
        yield _batch(file.name, [place + 1], at or datetime.now(UTC), [None], [why])


_Rows = tuple[list[int], list[str | None], list[str | None]]


def _read(file: Path) -> Iterator[_Rows]:
    """Yield places, rows and problems."""
    kind = format_of(file)
    if kind in (".csv", ".tsv"):
        yield from map(_of_chunk, text_chunks(file, "at least the texts"))
    elif kind == ".parquet":
        yield from map(_of_chunk, parquet_chunks(file))
    elif kind == ".jsonl":
        yield from _lines(file)
    else:
        raise BadInput(
            f"{file} has a name that does not tell its format: put it there again under one that ends in "
            f"{', '.join(FORMATS)}"
        )


def _of_chunk(chunk: Chunk) -> _Rows:
    bad = chunk.unreadable
    made = [_row(chunk.rows, at) for at in range(len(chunk.rows))]
    texts, problems = [text for text, _ in made], [problem for _, problem in made]
    return (
        [*chunk.places, *(row.place for row in bad)],
        texts + [row.text for row in bad],
        problems + [row.reason for row in bad],
    )


def _row(batch: pa.RecordBatch, at: int) -> tuple[str | None, str | None]:
    """Return a row and its problem."""
    try:
        return written({name: python_value(batch.column(name)[at]) for name in batch.schema.names}), None
    except UnicodeDecodeError as error:  # Parquet does not check its texts
        return None, undecodable(error.object[error.start])


def _lines(file: Path) -> Iterator[_Rows]:
    check_file(file)
    with file.open("rb") as stream:
        numbered = ((number, line) for number, line in enumerate(limits.lines(file, stream), start=1) if line.strip())
        for some in limits.in_chunks(numbered, lambda pair: len(pair[1])):
            lines = [line.strip() for _, line in some]
            texts: list[str | None] = [line.decode("utf-8", "replace").removeprefix("\ufeff") for line in lines]
            yield [number for number, _ in some], texts, [decoding_problem(line) or None for line in lines]


def _batch(
    source: str, places: list[int], at: datetime, texts: list[str | None], problems: list[str | None]
) -> pa.RecordBatch:
    columns = [[source] * len(places), places, [at] * len(places), texts, problems]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )
