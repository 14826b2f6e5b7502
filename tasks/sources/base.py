"""The interface of all sources, and the record that they yield."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from include.glue import SPLITS
from include.stages import BadInput
from tasks import outside
from tasks.sources.formats import check_file, format_of
from tasks.sources.labels import ReadLabel
from tasks.sources.lines import BLANK, PLAIN, Dialect, Row, remarks


@dataclass(frozen=True, slots=True)
class Record:
    """One data row as the source holds it. Its content has not been validated yet.

    Attributes:
        row: The 0-based number of the data row in its split.
        line: The 1-based line in the file; for Parquet and the hub, the 1-based number of the row.
        sentences: One text per sentence column; empty if the row cannot be read.
        label: The label as written in the source; "" in the test split.
        index: The value of a test file's index column; "" if there is no such column.
        problem: Why the row cannot be read; "" if it can.
        raw: The unparsed row, for the quarantine.
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
    """The positions of the columns in a row.

    Attributes:
        width: The number of fields per row.
        sentences: The positions of the sentence columns.
        label: Returns the label, given the fields; None in the test split.
        index: The position of the index column; None if the rows are not numbered.
    """

    width: int
    sentences: tuple[int, ...]
    label: ReadLabel | None
    index: int | None = None


class Source(ABC):
    """The train, dev and test splits of a task. Subclasses with one file per split only implement `records`."""

    splits: Sequence[str] = SPLITS  # only the user's own files may lack test

    def __init__(self, paths: dict[str, Path], dialect: Dialect = PLAIN) -> None:
        self.paths, self.dialect = paths, dialect
        self.ignored: dict[str, int] = {}  # split to the number of its blank rows, once it has been read

    @abstractmethod
    def records(self, split: str) -> Iterator[Record]:
        """Yield all data rows of a split in order."""

    def file(self, split: str) -> str:
        """Return where the split comes from, for messages."""
        return str(self.paths[split])

    def remarks(self, split: str) -> list[str]:
        """Return one sentence for each irregularity of the file that was corrected while reading."""
        found = remarks(self.paths[split], self.dialect.encoding)
        if blank := self.ignored.get(split):
            found.append(f"{self.paths[split]}: {blank} blank rows at the end were ignored")
        return found

    def fingerprint(self) -> str:
        """Return a string that changes whenever the content or the format of a raw file changes."""
        files = list(dict.fromkeys(self.paths.values()))
        for path in files:
            check_file(path, self.dialect.encoding)
        digests = "".join(format_of(path) + outside.digest(path) for path in files)
        return hashlib.sha256(digests.encode()).hexdigest()

    def to_records(self, rows: Iterable[Row], columns: Columns, split: str) -> Iterator[Record]:
        """Turn the data rows of a split, without the header, into records. Raise BadInput if there is none."""
        number = blank = 0
        for row in rows:
            if row.problem == BLANK:
                blank += 1
                continue
            yield _record(number, row, columns)
            number += 1
        self.ignored[split] = blank
        if not number:
            raise BadInput(f"{self.file(split)} has no data rows: add at least one")


def _record(number: int, row: Row, columns: Columns) -> Record:
    fields, problem, label = row.fields, row.problem, ""
    if not problem and len(fields) != columns.width:
        problem = f"wrong number of fields: {len(fields)} instead of {columns.width}"
    if not problem and columns.label is not None:
        try:
            label = columns.label(fields)
        except ValueError as error:
            problem = str(error)
    if problem:
        return Record(number, row.line, (), problem=problem, raw=row.text)
    return Record(
        number,
        row.line,
        tuple(fields[position] for position in columns.sentences),
        label,
        "" if columns.index is None else fields[columns.index],
        raw=row.text,
    )
