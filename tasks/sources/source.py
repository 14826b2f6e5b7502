"""The interface of all sources, and the record that they yield."""

from __future__ import annotations

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from include.glue import SPLITS
from include.stages import BadInput
from tasks import digests
from tasks.sources.labels import ReadLabel
from tasks.sources.parts import Part
from tasks.sources.text_files import BLANK, PLAIN, Dialect, Row, check_file, format_of, remarks

log = logging.getLogger(__name__)


@dataclass(slots=True)  # frozen, it would take three times as long to make
class Record:
    """One data row as the source holds it. Its content has not been validated yet."""

    row: int  # the 0-based number of the data row in its split
    line: int  # the 1-based line in its file; for Parquet and the hub, the 1-based number of the row
    sentences: tuple[str, ...]  # none if the row cannot be read
    label: str = ""  # as written in the source; "" in the test split
    index: str = ""  # the value of a test file's index column, if there is one
    problem: str = ""  # why the row cannot be read
    raw: str = ""  # the unparsed row, for the quarantine
    file: str = ""  # the file, as messages name it


@dataclass(frozen=True)
class Layout:
    """How the files of a split, and parts of them, become records, on any machine.

    Attributes:
        file: what messages call the files.
        dialect: how text is written.
        header: 1 if the first row of each file is no data, else 0.
        rows: returns the rows of a file, or of a part of it.
        texts: the number of texts in a row.
        read_label: takes what follows the texts. Without it, this is an index, if there is anything.
        is_copy: whether messages call each file as they call all, because it is a copy of a table.
    """

    file: str
    dialect: Dialect
    header: int
    rows: Callable[[Path, Part | None], Iterator[Row]]
    texts: int
    read_label: ReadLabel | None
    is_copy: bool = False

    def records(self, file: Path, part: Part, number: int) -> Iterator[Record]:
        """Yield the records of a part, of which the first has this number."""
        rows = (row for row in self.rows(file, part) if row.problem != BLANK)
        for at, row in enumerate(rows, start=number):
            yield self.record(at, file, row)

    def record(self, number: int, file: Path, row: Row) -> Record:
        """Return the record of a row."""
        return _record(number, self.file if self.is_copy else str(file), row, self.texts, self.read_label)


class Source(ABC):
    """The train, dev and test splits of a task."""

    splits: Sequence[str] = SPLITS  # only the user's own files may lack test
    is_one: bool = False  # whether the user's own files have all rows, and are split here
    version: str = ""  # of the table that is read, if it has versions

    def __init__(self, files: Mapping[str, tuple[Path, ...]], dialect: Dialect = PLAIN) -> None:
        self.files, self.dialect = files, dialect
        self._blank: dict[str, int] = {}  # file to the number of its blank rows, once it has been read

    @abstractmethod
    def records(self, split: str) -> Iterator[Record]:
        """Yield all data rows of a split in order. Raise BadInput if the split as a whole cannot be read."""

    def layout(self, split: str) -> Layout | None:
        """Return how parts of the split's files are read; None if the split can only be read as a whole."""
        return None

    def file(self, split: str) -> str:
        """Return where the split comes from, for messages; "" if there is no such split."""
        return str(next(iter(self.files.get(split, ())), ""))

    def remarks(self, split: str) -> list[str]:
        """Return one sentence for each irregularity of the files that was corrected while reading."""
        found = []
        for file in self.files.get(split, ()):
            found += remarks(file, self.dialect.encoding)
            if blank := self._blank.get(str(file)):
                found.append(f"{file}: {blank} blank rows at the end were ignored")
        return found

    def fingerprint(self) -> str:
        """Return a string that changes whenever the content or the format of a raw file changes."""
        digest = hashlib.sha256()
        for files in dict.fromkeys(self.files.values()):
            if len(files) > 1:  # it also tells where the files of the next split begin
                digest.update(json.dumps([file.name for file in files]).encode())
            for file in files:
                check_file(file, self.dialect.encoding)
                digest.update((format_of(file) + digests.digest(file)).encode())
        return digest.hexdigest()

    def to_records(self, files: Iterable[Path], split: str, layout: Layout) -> Iterator[Record]:
        """Yield the records of whole files."""
        number = 0
        for file in files:
            blank = 0
            for row in layout.rows(file, None):
                if row.problem == BLANK:
                    blank += 1
                    continue
                yield layout.record(number, file, row)
                number += 1
            self.note_blank_rows(file, blank)
        if not number:
            raise BadInput(f"{self.file(split)} has no data rows: add at least one")

    def log_split(self, rows: Mapping[str, int]) -> None:
        """Log how many rows of files with all rows are in each split."""
        shown = ", ".join(f"{rows[split]:,} {split}" for split in SPLITS)
        log.info("the rows of %s are split: %s", self.file("train"), shown)

    def note_blank_rows(self, file: Path, number: int) -> None:
        """Note how many blank rows at the end of a file were ignored."""
        self._blank[str(file)] = number


def _record(number: int, file: str, row: Row, texts: int, read_label: ReadLabel | None) -> Record:
    problem, rest, label = row.problem, row.fields[texts:], ""
    if not problem and read_label is not None:
        try:
            label = read_label(rest)
        except ValueError as error:
            problem = str(error)
    if problem:
        return Record(number, row.line, (), problem=problem, raw=row.text, file=file)
    index = rest[0] if read_label is None and rest else ""
    return Record(number, row.line, tuple(row.fields[:texts]), label, index, raw=row.text, file=file)
