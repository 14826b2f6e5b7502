"""The interface of all sources, and the record that they yield."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
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
    line: int  # the 1-based line in the file; for Parquet and the hub, the 1-based number of the row
    sentences: tuple[str, ...]  # none if the row cannot be read
    label: str = ""  # as written in the source; "" in the test split
    index: str = ""  # the value of a test file's index column, if there is one
    problem: str = ""  # why the row cannot be read
    raw: str = ""  # the unparsed row, for the quarantine


class Source(ABC):
    """The train, dev and test splits of a task."""

    splits: Sequence[str] = SPLITS  # only the user's own files may lack test

    def __init__(self, paths: dict[str, Path], dialect: Dialect = PLAIN) -> None:
        self.paths, self.dialect = paths, dialect
        self._blank: dict[str, int] = {}  # split to the number of its blank rows, once it has been read

    @abstractmethod
    def records(self, split: str) -> Iterator[Record]:
        """Yield all data rows of a split in order. Raise BadInput if the split as a whole cannot be read."""

    def file(self, split: str) -> str:
        """Return where the split comes from, for messages; "" if there is no such split."""
        return str(self.paths.get(split, ""))

    def remarks(self, split: str) -> list[str]:
        """Return one sentence for each irregularity of the file that was corrected while reading."""
        if split not in self.paths:
            return []
        found = remarks(self.paths[split], self.dialect.encoding)
        if blank := self._blank.get(split):
            found.append(f"{self.paths[split]}: {blank} blank rows at the end were ignored")
        return found

    def fingerprint(self) -> str:
        """Return a string that changes whenever the content or the format of a raw file changes."""
        digest = hashlib.sha256()
        for path in dict.fromkeys(self.paths.values()):
            check_file(path, self.dialect.encoding)
            digest.update((format_of(path) + digests.digest(path)).encode())
        return digest.hexdigest()

    def to_records(self, rows: Iterable[Row], split: str, texts: int, read_label: ReadLabel | None) -> Iterator[Record]:
        """Turn rows, of these many texts and what `read_label` takes or, without it, an index if any, into records."""
        number = blank = 0
        for row in rows:
            if row.problem == BLANK:
                blank += 1
                continue
            yield _record(number, row, texts, read_label)
            number += 1
        self._blank[split] = blank
        if not number:
            raise BadInput(f"{self.file(split)} has no data rows: add at least one")


def _record(number: int, row: Row, texts: int, read_label: ReadLabel | None) -> Record:
    problem, rest, label = row.problem, row.fields[texts:], ""
    if not problem and read_label is not None:
        try:
            label = read_label(rest)
        except ValueError as error:
            problem = str(error)
    if problem:
        return Record(number, row.line, (), problem=problem, raw=row.text)
    index = rest[0] if read_label is None and rest else ""
    return Record(number, row.line, tuple(row.fields[:texts]), label, index, raw=row.text)
