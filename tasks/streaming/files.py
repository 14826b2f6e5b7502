"""The rows of the files in a folder as a source of Spark: each file is read once, in the order in which it appeared.

Spark's own source forgets files that are a week older than the newest one, and takes a file that is still being copied.
This one notes every file in a log before Spark hears of it, and an offset is a number of lines in that log.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from include.datasets import is_finished
from include.fields.data import FORMATS
from include.folders import Dropped
from include.stages import BadInput
from tasks.sources import limits
from tasks.sources.compression import unpacked
from tasks.sources.json_row import written
from tasks.sources.table import Chunk, chunks
from tasks.sources.text_files import check_file, decoding_problem, format_of, undecodable
from tasks.sources.values import python_value
from tasks.streaming.rows import ARROW, SCHEMA


class FileSource(DataSource):
    """The source. Options: folder, log, settle (seconds unchanged), files (per batch), partitions."""

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


class FileReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the log has between two offsets, {"files": number of lines}."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._folder, self._log = Dropped(options["folder"]), Path(options["log"])
        self._settle, self._files = float(options["settle"]), int(options["files"])
        self._partitions = int(options["partitions"])
        self._target: int | None = None
        self._names: list[str] | None = None
        self._ahead: dict[str, tuple[tuple[int, int], float]] = {}  # size and time of a file, and since when
        self._missing = 0.0  # seconds until all files of the last look may be read

    def initialOffset(self) -> dict[str, int]:
        """Return where a new stream begins."""
        return {"files": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a batch may have."""
        return ReadMaxFiles(self._files)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no files but those that are there now, after waiting for those that were changed just now."""
        names = self._look()
        if self._missing:  # there is no later look
            time.sleep(self._missing)
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
        return [InputPartition(paths[at :: self._partitions]) for at in range(min(self._partitions, len(paths)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the partition's files."""
        for path in partition.value:
            yield from rows(Dropped(path))

    def _look(self) -> list[str]:
        known = self._known()
        found = self._settled(set(known))
        if found:
            with self._log.open("ab") as stream:
                stream.write(b"".join(json.dumps(one).encode() + b"\n" for one in found))
                stream.flush()
                os.fsync(stream.fileno())
        known += [name for name, _ in found]
        return known

    def _settled(self, known: set[str]) -> list[tuple[str, int]]:
        found, self._missing = [], 0.0
        try:
            files = [file for file in self._folder.iterdir() if file.name not in known and is_finished(file)]
        except FileNotFoundError as error:
            raise BadInput(f"there is no folder {self._folder}: make it, or correct streaming.folder") from error
        for file in files:
            try:
                status = file.stat()
            except FileNotFoundError:  # it was moved away in this moment
                continue
            age = self._age(file.name, status)
            if age >= self._settle:
                found.append((status.st_mtime_ns, file.name, status.st_size))
                self._ahead.pop(file.name, None)
            else:
                self._missing = max(self._missing, self._settle - age)
        return [(name, size) for _, name, size in sorted(found)]

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
        if self._names is None:  # only this process extends the log while it lives
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
    return [name for name, _ in _entries(whole)]


def changed_files(folder: Path, log: Path) -> list[str]:
    """Return the names of the files whose sizes have changed since they were noted: what was added is not read."""
    data = log.read_bytes()
    noted = dict(_entries(data[: data.rfind(b"\n") + 1]))
    sizes = {}
    with suppress(FileNotFoundError):
        sizes = {file.name: file.stat().st_size for file in Dropped(folder).iterdir() if is_finished(file)}
    return [name for name, size in noted.items() if size is not None and sizes.get(name, size) != size]


def _entries(data: bytes) -> list[tuple[str, int | None]]:
    """Return the names and sizes in whole lines of a log. Those of earlier versions have no sizes."""
    found = [json.loads(line) for line in data.splitlines()]
    return [(one, None) if isinstance(one, str) else (one[0], one[1]) for one in found]


def rows(file: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file. If it cannot be read on, the last row says why, so that the stream goes on.

    Raises:
        OSError: If the disk or the network failed. The file may be sound, so its batch has to be repeated.
    """
    at, place = None, 0
    try:
        at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        for some in limits.in_chunks(_read(file), lambda row: len(row.text or "")):
            yield _batch(file.name, at, some)
            place = max(row.place for row in some)  # those of unreadable rows come last in a chunk
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError):
            raise
        known = isinstance(error, BadInput | OSError)
        why = str(error) if known else f"the file cannot be read ({error!r}): write it again"
        why = why.replace(str(file), "the file")  # reasons are counted, and the row has the name of the file
        yield _batch(file.name, at or datetime.now(UTC), [_Row(place + 1, None, why)])


class _Row(NamedTuple):
    """A row: its line or number, its text or JSON object, and why it cannot be read, or None."""

    place: int
    text: str | None
    problem: str | None


def _read(file: Path) -> Iterator[_Row]:
    if format_of(file) not in FORMATS:
        raise BadInput(
            f"{file} has a name that does not tell its format: put it there again under one that ends in "
            f"{', '.join(FORMATS)}"
        )
    if format_of(file) == ".jsonl":
        return _lines(file)
    return chain.from_iterable(map(_of_chunk, chunks(file, "at least the texts")))


def _of_chunk(chunk: Chunk) -> Iterator[_Row]:
    for at, place in enumerate(chunk.places):
        try:
            text = written({name: python_value(chunk.rows.column(name)[at]) for name in chunk.rows.schema.names})
        except UnicodeDecodeError as error:  # Parquet does not check its texts
            yield _Row(place, None, undecodable(error.object[error.start]))
            continue
        yield _Row(place, text, None) if len(text) <= limits.BYTES else _Row(place, None, limits.TOO_LARGE)
    for row in chunk.unreadable:
        yield _Row(row.line, row.text, row.problem)


def _lines(file: Path) -> Iterator[_Row]:
    check_file(file)
    with file.open("rb") as stream:
        for number, line in enumerate(limits.lines(file, unpacked(file, stream)), start=1):
            if line.strip():
                text = line.strip().decode("utf-8", "replace").removeprefix("\ufeff")
                yield _Row(number, text, decoding_problem(line.strip()) or None)


def _batch(source: str, at: datetime, rows: Sequence[_Row]) -> pa.RecordBatch:
    places, texts, problems = zip(*rows, strict=True)
    columns = [[source] * len(rows), places, [at] * len(rows), texts, problems]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )
