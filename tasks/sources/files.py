"""The user's own files: some for each split, or some with all rows, which are split here."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from include.fields.data import Data
from include.folders import Dropped, user_path
from include.glue import AUTO, SPLITS, Task
from include.stages import BadInput
from include.tables import files_of, split_paths
from tasks.sources.labels import ReadLabel, read_cell, read_flags
from tasks.sources.lake import CopiedTable, open_table
from tasks.sources.normalize import overlap_key
from tasks.sources.parts import Part
from tasks.sources.quarantine import problem
from tasks.sources.source import Layout, Record, Source
from tasks.sources.table import check_column, column_rows, common_columns, same_format
from tasks.sources.text_files import Dialect, Row, check_file, format_of

#: The options of make run that name columns.
_OPTIONS = {"sentence": "TEXT", "sentence2": "TEXT2", "label": "LABEL"}
_RULE = "1"  # must be increased when a change moves rows of one file to another split
BINS = 10  # strata of scores


class OwnFiles(Source):
    """Files of each split below data.path, or files with all rows. Columns without a role in the task are not read.

    A file of the drop folder has the rows of every split, and its name is not a pattern.
    """

    def __init__(self, data: Data, task: Task, dropped: Dropped | None = None) -> None:
        root = user_path(data.path)
        paths = split_paths(data, root) if dropped is None else dict.fromkeys(SPLITS, dropped)
        found = {path: files_of(path) if dropped is None else [path] for path in paths.values()}
        files = {split: tuple(same_format(path, found[path])) for split, path in paths.items()}
        self._open(data, task, paths, files)
        self.is_one = set(paths.values()) == {root}

    def _open(
        self, data: Data, task: Task, paths: Mapping[str, Path | str], files: Mapping[str, tuple[Path, ...]]
    ) -> None:
        super().__init__(files, Dialect(data.delimiter, data.encoding))
        self.splits, self._paths = tuple(paths), paths
        self._data, self._task, self._parts = data, task, list[str]()
        columns = {str(role): name for role, name in data.columns.items()}
        self.names = {role: columns.get(role, role) for role in (*task.sentences, "label")}

    def records(self, split: str) -> Iterator[Record]:
        """Yield the rows of a split; none if it has no file. In a file with all rows, they keep their numbers."""
        if split not in self.files:
            return
        if not self.is_one:
            yield from self._records(split)
            return
        if not self._parts:
            self._parts = _split(self._records("train"), self._task)
            self.log_split(Counter(self._parts))
        yield from (record for part, record in zip(self._parts, self._records(split), strict=True) if part == split)

    def labeled(self) -> Iterator[Record]:
        """Yield the rows of train and dev or, of a file with all rows, every row."""
        for split in ("train",) if self.is_one else ("train", "dev"):
            yield from self._records(split)

    def file(self, split: str) -> str:
        """Return the file, folder or pattern of a split; "" if there is no such split."""
        return str(self._paths.get(split, ""))

    def remarks(self, split: str) -> list[str]:
        """Return one sentence for each irregularity of the files, and one if the test file that is named is missing."""
        if split not in self.files and self._data.test:
            file = user_path(self._data.path) / self._data.test
            return [f"there is no file {file}, so nothing is predicted: put it there, or name another"]
        return super().remarks(split) if split == "train" or not self.is_one else []

    def fingerprint(self) -> str:
        """Return a string that changes whenever a file, or the rule that splits all rows, changes."""
        return f"{super().fingerprint()}-{_RULE}" if self.is_one else super().fingerprint()

    def has_flags(self) -> bool:
        """Return whether the training file has a column of 0 and 1 for each label, and no column of labels."""
        return len(self._columns("train")) - len(self._task.sentences) > 1

    def layout(self, split: str) -> Layout:
        """Return how the split's files are read. Raise BadInput if they lack a column."""
        columns, texts = self._columns(split), len(self._task.sentences)
        dialect, header = self.dialect, int(format_of(self.files[split][0]) in (".csv", ".tsv"))

        def rows(file: Path, part: Part | None) -> Iterator[Row]:
            return column_rows(file, columns, dialect, columns[:texts], part)

        return Layout(self.file(split), dialect, header, rows, texts, self._read_label(columns[texts:]))

    def _records(self, split: str) -> Iterator[Record]:
        yield from self.to_records(self.files[split], split, self.layout(split))

    def _columns(self, split: str) -> list[str]:
        """Return the names of the columns with the texts and, unless in test, of those with the label or the labels."""
        files, roles, labels = self.files[split], dict(self.names), self._data.labels
        for file in files:
            check_file(file, self.dialect.encoding)
        header = common_columns(files, ", ".join(self.names.values()), self.dialect)
        several = self._task.kind == "multilabel" or self._task.name == AUTO
        if split == "test":
            del roles["label"]
        elif several and labels and roles["label"] not in header and set(labels) <= set(header):
            del roles["label"]
            roles |= {f"label {label}": label for label in labels}
        for role, name in roles.items():
            option = f", or as {_OPTIONS[role]} of make run" if role in _OPTIONS else ""
            remedy = f"Name the column in data.columns, as {{{role!r}: 'column name'}}{option}"
            if len(header) == 1 and len(roles) > 1 and format_of(files[0]) in (".csv", ".tsv"):
                remedy = f"Name the character between columns in data.delimiter. {remedy}"
            check_column(files[0], header, name, f" for the role {role}", remedy)
        return list(roles.values())

    def _read_label(self, columns: Sequence[str]) -> ReadLabel | None:
        if not columns:
            return None
        if columns == [self.names["label"]]:
            return read_cell(self._data, several=self._task.kind == "multilabel")
        return read_flags(columns, self._task.separator)


class TableRows(OwnFiles):
    """A version of a table of Delta Lake or Iceberg, with all rows, which are split as those of files are."""

    is_one = True

    def __init__(self, data: Data, task: Task) -> None:
        self._table = open_table(data.source, data.path, data.table, data.version)
        self.version = self._table.version
        self._open(data, task, dict.fromkeys(SPLITS, self._table.name), CopiedTable(self._table))

    def fingerprint(self) -> str:
        """Return a string that changes whenever the version, or the rule that splits all rows, changes."""
        return f"{hashlib.sha256(self._table.identity.encode()).hexdigest()}-{_RULE}"

    def layout(self, split: str) -> Layout:
        """Return how the copy of the table is read. Raise BadInput if it lacks a column."""
        layout = super().layout(split)
        (file,), name = self.files[split], self._table.name

        def rows(copy: Path, part: Part | None) -> Iterator[Row]:
            with named(file, name):
                yield from layout.rows(copy, part)

        return replace(layout, rows=rows, is_copy=True)

    def _columns(self, split: str) -> list[str]:
        with named(self.files[split][0], self._table.name):
            return super()._columns(split)


@contextmanager
def named(copy: Path, name: str) -> Iterator[None]:
    """Let errors about a copy of a table name the table."""
    try:
        yield
    except BadInput as error:
        raise BadInput(str(error).replace(str(copy), name)) from error


def _split(records: Iterable[Record], task: Task) -> list[str]:
    """Return the split of each row: a tenth of each stratum is dev, another tenth is test.

    The order of the hashes of the texts decides, so that equal texts are in the same split, and that the split depends
    neither on a seed nor on the order of the rows. A stratum is a class, a tenth of the scores or, if rows have several
    labels, the rows with the same rarest label. Rows that cannot be used are in train, where some are tolerated.
    """
    keys: list[int | None] = []
    labels: dict[int, str] = {}
    for record in records:
        key = None if problem(record, task, "train") else overlap_key(record.sentences)
        keys.append(key)
        if key is not None:
            labels.setdefault(key, record.label)
    part: dict[int, str] = {}
    for stratum in _strata(labels, task):
        some = max(1, round(len(stratum) / 10)) if len(stratum) > 2 else 0
        ordered = sorted(stratum)
        part |= dict.fromkeys(ordered[:some], "test") | dict.fromkeys(ordered[some : 2 * some], "dev")
    return ["train" if key is None else part.get(key, "train") for key in keys]


def _strata(labels: dict[int, str], task: Task) -> Iterator[list[int]]:
    if task.kind == "regression":
        ordered = sorted(labels, key=lambda key: (float(labels[key]), key))
        bins = min(BINS, max(1, len(ordered) // 10))
        yield from (ordered[len(ordered) * at // bins : len(ordered) * (at + 1) // bins] for at in range(bins))
        return
    named = {key: task.labels_in(label) for key, label in labels.items()}
    rows = Counter(label for found in named.values() for label in found)
    strata: dict[str, list[int]] = defaultdict(list)
    for key, found in named.items():
        strata[min(found, key=lambda label: (rows[label], label), default="")].append(key)
    yield from strata.values()
