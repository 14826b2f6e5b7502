"""What executors do: count the rows of pieces of files, write drafts of them, and then the parts of the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from include.glue import SPLITS, Task
from include.stages import BadInput
from tasks.sources import pieces
from tasks.sources.pieces import Count, Piece, count
from tasks.sources.quarantine import Quarantine, Tally
from tasks.sources.source import Layout
from tasks.sources.text_files import BLANK
from tasks.spark import Executors, answer
from tasks.stages.pipeline.validate.tables import OTHERS, Facts, part_name, write_draft, write_overlap, write_table
from tasks.staging import Staging, below, opened, whole_file


@dataclass(frozen=True)
class Input:
    """A piece of a file, and how it is read.

    Attributes:
        split: the split of all its rows or, of a file with all rows, train.
        number: of the piece in the split.
        address: of the file.
    """

    split: str
    number: int
    piece: Piece
    address: str
    layout: Layout


@dataclass(frozen=True)
class Places:
    """The addresses of the folders that executors write to.

    Attributes:
        drafts: of the drafts.
        lines: of what is listed of the rows that are set aside, as JSON Lines.
        tables: of the table of each split.
        checked: of the table of each split with all facts.
    """

    drafts: str
    lines: str
    tables: Mapping[str, str]
    checked: Mapping[str, str]

    def draft(self, which: Input) -> str:
        """Return the address of the draft of a piece."""
        return below(self.drafts, f"{which.split}-{part_name(which.number)}")

    def listed(self, kind: str, which: Input) -> str:
        """Return the address of the list, "quarantine" or "overlap", of a piece."""
        return below(self.lines, f"{kind}-{SPLITS.index(which.split)}-{which.number:05d}.jsonl")


def count_piece(which: Input) -> Count:
    """Count the rows of a piece; of a file that cannot be divided by reading it."""
    with opened(which.address) as stream:
        if which.piece.stop is not None:
            return count(which.piece, stream, which.layout.dialect)
        problems = [row.problem == BLANK for row in which.layout.rows(which.piece.file, which.piece.part(stream))]
        rows = problems.count(False) + which.layout.header
        return Count(which.piece, 1, rows, 1, blank=problems.count(True))


@dataclass(frozen=True)
class ReadPiece:
    """Writes the usable rows of a piece to a draft, and lists the others."""

    task: Task
    places: Places
    is_one: bool

    def __call__(self, which: Input) -> Tally:
        """Read the piece, and return what is in the quarantine."""
        with ExitStack() as stack:
            draft, aside = (
                stack.enter_context(whole_file(address))
                for address in (self.places.draft(which), self.places.listed("quarantine", which))
            )
            stream = stack.enter_context(opened(which.address))
            lines = stack.enter_context(aside.open("w", encoding="utf-8"))
            quarantine = Quarantine(lines, which.split, which.layout.file)
            records = which.layout.records(which.piece.file, which.piece.part(stream), which.piece.row)
            write_draft(quarantine.usable(records, self.task), self.task, which.split, draft, self.is_one)
        return quarantine.tally


def number_of_tasks(spark: SparkSession, inputs: Sequence[Input]) -> int:
    """Return how many tasks read the pieces: one for each, or fewer if the files are small."""
    size = sum(file.stat().st_size for file in {which.piece.file for which in inputs})
    return min(len(inputs), max(spark.sparkContext.defaultParallelism, size // pieces.SIZE))


def for_each(spark: SparkSession, work: Callable[[Input], Any], inputs: Sequence[Input]) -> list[Any]:
    """Do the work for each piece on executors, and return the results in order. A BadInput is returned, not raised."""

    def work_on(number: int) -> Any:
        try:
            return work(inputs[number])
        except BadInput as error:
            return error

    return Executors(spark, Staging()).map(work_on, len(inputs), number_of_tasks(spark, inputs))


@dataclass(frozen=True)
class ReadKeys:
    """Reads the keys of a draft by its number: the columns of tasks.stages.pipeline.validate.keys."""

    inputs: Sequence[Input]
    places: Places
    columns: list[str]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the keys of all rows."""
        which = self.inputs[number]
        with opened(self.places.draft(which)) as stream:
            draft = pq.ParquetFile(stream)
            for batch in draft.iter_batches(columns=self.columns):
                constants = {"piece": np.full(len(batch), number)}
                constants["split"] = np.full(len(batch), SPLITS.index(which.split), np.int32)
                arrays = [
                    pa.array(constants[name]) if name in constants else batch.column(name) for name in self.columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, self.columns)


@dataclass(frozen=True)
class ReadPart:
    """Reads a file of a table by its number."""

    addresses: Sequence[str]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield its rows."""
        with opened(self.addresses[number]) as stream:
            yield from pq.ParquetFile(stream).iter_batches()


@dataclass(frozen=True)
class WriteTables:
    """Writes the parts of the tables that belong to pieces, of which a partition has all exceptions."""

    inputs: Sequence[Input]
    places: Places
    task: Task

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take the exceptions, and a row with nothing but its number for each piece; a function for mapInArrow."""
        found = pa.Table.from_batches(list(chunks))
        for number in sorted(pc.unique(found["piece"]).to_pylist()):
            yield answer(number, self._write(found.filter(pc.equal(found["piece"], number))))

    def _write(self, found: pa.Table) -> dict[str, int]:
        """Return the number of rows that stay in each split."""
        which = self.inputs[found["piece"][0].as_py()]
        with opened(self.places.draft(which)) as stream:
            draft = pq.ParquetFile(stream)
            rows = draft.read(["row"])["row"].to_numpy()
            all_facts = _facts(rows, which.split, found.filter(pc.is_valid(found["row"])))
            return {name: self._write_split(which, draft, name, facts) for name, facts in all_facts.items()}

    def _write_split(self, which: Input, draft: pq.ParquetFile, split: str, facts: Facts) -> int:
        if split == "train" and facts.overlaps.any():
            with whole_file(self.places.listed("overlap", which)) as file:
                write_overlap(draft, facts, file)
        places = (below(folder[split], part_name(which.number)) for folder in (self.places.checked, self.places.tables))
        with ExitStack() as stack:
            checked, table = (stack.enter_context(whole_file(place)) for place in places)
            return write_table(draft, self.task, split, facts, checked, table)


def _facts(rows: npt.NDArray[np.int64], split: str, found: pa.Table) -> dict[str, Facts]:
    """Return the facts by split about the rows with these numbers, of which exceptions were found."""
    columns: dict[str, npt.NDArray[Any]] = {
        "labels_of_text": np.ones(len(rows), np.int64),
        "splits": np.zeros(len(rows), np.int32),
        "split": np.full(len(rows), SPLITS.index(split), np.int32),
    }
    for name in set(columns) & set(found.column_names):
        exceptions = found.filter(pc.is_valid(found[name]))
        columns[name][np.searchsorted(rows, exceptions["row"].to_numpy())] = exceptions[name].to_numpy()
    facts = {}
    for name in SPLITS if "split" in found.column_names else (split,):
        labels = columns["labels_of_text"] * (name != "test")
        also_in = {other: columns["splits"] & 1 << SPLITS.index(other) != 0 for other in OTHERS[name]}
        facts[name] = Facts(labels, also_in, columns["split"] == SPLITS.index(name))
    return facts
