"""The interface of all sources, and the record that they yield."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from include.glue import SPLITS
from include.stages import BadInput
from tasks import digests
from tasks.sources.labels import ReadLabel
from tasks.sources.text_files import BLANK, PLAIN, Dialect, Row, check_file, format_of, remarks


@dataclass(frozen=True, slots=True)
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


class Source(ABC):
    """The train, dev and test splits of a task."""

    splits: Sequence[str] = SPLITS  # only the user's own files may lack test

    def __init__(self, files: Mapping[str, tuple[Path, ...]], dialect: Dialect = PLAIN) -> None:
        self.files, self.dialect = files, dialect
        self._blank: dict[str, int] = {}  # file to the number of its blank rows, once it has been read

    @abstractmethod
    def records(self, split: str) -> Iterator[Record]:
        """Yield all data rows of a split in order. Raise BadInput if the split as a whole cannot be read."""

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

    def to_records(
        self, files: Iterable[tuple[str, Iterable[Row]]], split: str, texts: int, read_label: ReadLabel | None
    ) -> Iterator[Record]:
        """Turn the rows of files into records: these many texts and what `read_label` takes, else an index if any."""
        number = 0
        for file, rows in files:
            blank = 0
            for row in rows:
                if row.problem == BLANK:
                    blank += 1
                    continue
                yield _record(number, file, row, texts, read_label)
                number += 1
            self._blank[file] = blank
        if not number:
            raise BadInput(f"{self.file(split)} has no data rows: add at least one")


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
