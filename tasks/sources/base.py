"""What every source offers, and the record that it offers it in."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from include.artifacts import sha256
from include.stages import BadInput
from tasks.sources.lines import Row, check_file, remarks


@dataclass(frozen=True, slots=True)
class Record:
    """One data row as the source holds it. It can be read; whether its content is right is not yet judged.

    Attributes:
        row: 0-based number of the data row in its split.
        line: 1-based line in the file (for Parquet and the hub, the row's number from 1).
        sentences: one text for each sentence column; empty when the row cannot be read.
        label: as written; "" in test.
        index: what the index column of a test file holds, "" where there is none.
        problem: why the row cannot be read, "" when it can.
        raw: the row as it stands there, for a person to look at.
    """

    row: int
    line: int
    sentences: tuple[str, ...]
    label: str = ""
    index: str = ""
    problem: str = ""
    raw: str = ""


@dataclass(frozen=True)
class Columns:
    """Which fields of a row are what, by position.

    Attributes:
        width: fields in a row.
        label: None in test.
        index: None where rows are not numbered.
    """

    width: int
    sentences: tuple[int, ...]
    label: int | None
    index: int | None = None


class Source(ABC):
    """Train, dev and test of a task; subclasses of one file a split only say how it is read."""

    def __init__(self, paths: dict[str, Path]) -> None:
        self.paths = paths

    @abstractmethod
    def records(self, split: str) -> Iterator[Record]:
        """All data rows in order, one after another. Raises BadInput when the split as a whole is unusable."""

    def file(self, split: str) -> str:
        """Where the split comes from, in words."""
        return str(self.paths[split])

    def remarks(self, split: str) -> list[str]:
        """What is unusual about the file and was put right."""
        return remarks(self.paths[split])

    def fingerprint(self) -> str:
        """Changes when the content of a raw file does. Raises BadInput for a file that is missing or no text."""
        for path in self.paths.values():
            check_file(path)
        digests = "".join(sha256(path) for path in self.paths.values())
        return hashlib.sha256(digests.encode()).hexdigest()


def to_records(rows: Iterable[Row], columns: Columns, file: str) -> Iterator[Record]:
    """Pick the columns out of rows. Raises BadInput when there is no row at all."""
    number = -1
    for number, row in enumerate(rows):
        yield _record(number, row, columns)
    if number < 0:
        raise BadInput(f"{file} has no data rows: give it at least one")


def _record(number: int, row: Row, columns: Columns) -> Record:
    fields, problem = row.fields, row.problem
    if not problem and len(fields) != columns.width:
        problem = f"wrong number of fields: {len(fields)} instead of {columns.width}"
    if problem:
        return Record(number, row.line, (), problem=problem, raw=row.text)
    return Record(
        number,
        row.line,
        tuple(fields[position] for position in columns.sentences),
        "" if columns.label is None else fields[columns.label],
        "" if columns.index is None else fields[columns.index],
        raw=row.text,
    )
