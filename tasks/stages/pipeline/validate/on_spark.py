"""Read the splits on executors: row for row what one process makes of them, in one part for each piece of a file."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from include.experiment import Experiment
from include.glue import SPLITS, Task
from include.stages import BadInput
from tasks.sources import Source
from tasks.sources.lake import CopiedTable
from tasks.sources.pieces import Count, Piece, divide, number
from tasks.sources.quarantine import Tally
from tasks.sources.text_files import check_file
from tasks.spark import ANSWER, answers, map_numbers, read_parquet, session
from tasks.stages.pipeline.validate.executors import (
    Input,
    Places,
    ReadKeys,
    ReadPart,
    ReadPiece,
    WriteTables,
    count_piece,
    for_each,
    number_of_tasks,
)  # fmt: skip
from tasks.stages.pipeline.validate.keys import exceptions, keys_schema, with_splits
from tasks.stages.pipeline.validate.one_process import write_splits
from tasks.stages.pipeline.validate.tables import Tables, checked_folder, checked_schema, part_name, table_schema
from tasks.staging import Staging, below, is_local, staging

log = logging.getLogger(__name__)


@contextmanager
def validated(experiment: Experiment, source: Source, scratch: Path, output: Path) -> Iterator[Tables]:
    """Write the tables and the lists of rows that are set aside, and open what the rules check."""
    task = experiment.task
    with session(experiment, "validate") as spark, staging(spark) as staged:
        if isinstance(source.files, CopiedTable) and not (staged.url or is_local(spark)):
            source.files.move(scratch)
        if source.layout(source.splits[0]) is None:  # published data, of which there is not much
            tables, parts = write_splits(task, source, scratch, output), dict.fromkeys(SPLITS, 1)
            for split in source.splits:
                staged.share(checked_folder(scratch, split))
        else:
            tables, parts = _write_splits(spark, staged, source, task, scratch, output)
        checked = {split: checked_folder(scratch, split) for split in source.splits}
        frames = {split: _frame(spark, staged, folder, parts[split], task) for split, folder in checked.items()}
        yield replace(tables, frames=frames)


def _write_splits(
    spark: SparkSession, staged: Staging, source: Source, task: Task, scratch: Path, output: Path
) -> tuple[Tables, dict[str, int]]:
    folders = {split: output / f"{split}.parquet" for split in SPLITS}
    checked = {split: checked_folder(scratch, split) for split in source.splits}
    drafts, lists = scratch / "drafts", scratch / "lists"
    for folder in (drafts, lists, *folders.values(), *checked.values()):
        folder.mkdir()
    tables, with_facts = (
        {split: staged.address_of(folder) for split, folder in some.items()} for some in (folders, checked)
    )
    places = Places(staged.address_of(drafts), staged.address_of(lists), tables, with_facts)
    splits = ("train",) if source.is_one else source.splits
    inputs, problem = find_inputs(spark, staged, source, splits)
    log.info("executors read %d pieces of the files", len(inputs))
    tallies = _read(spark, inputs, ReadPiece(task, places, source.is_one), problem)
    rows = _write(spark, inputs, places, task, source.is_one)
    if source.is_one:
        source.log_split(rows)
        read = tallies["train"].read - rows["dev"] - rows["test"]
        tallies |= {"train": replace(tallies["train"], read=read)}
        tallies |= {split: Tally(read=rows[split]) for split in ("dev", "test")}
    for folder in (lists, *folders.values()):
        staged.collect(folder)
    for kind in ("quarantine", "overlap"):
        _join(sorted(lists.glob(f"{kind}-*")), output / f"{kind}.jsonl")
    for folder in folders.values():
        if not any(folder.iterdir()):  # there is no such split
            pq.write_table(table_schema(task).empty_table(), folder / part_name(0))
    parts = {split: sum(one.split == split or source.is_one for one in inputs) for split in SPLITS}
    return Tables({split: tallies[split].summary(task) for split in SPLITS}, rows), parts


def find_inputs(
    spark: SparkSession, staged: Staging, source: Source, splits: Sequence[str]
) -> tuple[list[Input], BadInput | None]:
    """Return the pieces of all files, numbered, or those in front of a file that cannot be read, and what is wrong."""
    inputs: list[Input] = []
    try:
        for split in splits:
            for found in _of_split(spark, staged, source, split):
                inputs.append(found)
    except BadInput as error:
        return inputs, error
    return inputs, None


def _of_split(spark: SparkSession, staged: Staging, source: Source, split: str) -> Iterator[Input]:
    for file in source.files[split]:
        check_file(file, source.dialect.encoding)
    layout = source.layout(split)
    assert layout is not None
    addresses = {file: staged.share(file) for file in source.files[split]}
    pieces = [
        Input(split, 0, piece, address, layout)
        for file, address in addresses.items()
        for piece in divide(file, source.dialect)
    ]
    row, place = 0, itertools.count()
    for file, counts in _counts(spark, pieces):
        if problem := next((one for one in counts if isinstance(one, BadInput)), None):
            raise problem
        numbered, row, blank = number(counts, layout.header, row)
        source.note_blank_rows(file, blank)
        yield from (Input(split, next(place), piece, addresses[file], layout) for piece in numbered)
    if not row:  # reading what there is finds out why
        deque(source.records(split), maxlen=0)


def _counts(spark: SparkSession, pieces: Sequence[Input]) -> Iterator[tuple[Path, list[Any]]]:
    """Yield each file with the counts of its pieces. A file that cannot be divided is one piece."""
    counts = for_each(spark, count_piece, pieces)
    of_file = {
        file: list(pairs)
        for file, pairs in itertools.groupby(zip(pieces, counts, strict=True), lambda pair: pair[0].piece.file)
    }
    quoted = {
        file: replace(pairs[0][0], piece=Piece(file))
        for file, pairs in of_file.items()
        if any(count.is_quoted for _, count in pairs if isinstance(count, Count))
    }
    again = dict(zip(quoted, for_each(spark, count_piece, list(quoted.values())), strict=True))
    for file, pairs in of_file.items():
        yield file, [again[file]] if file in again else [count for _, count in pairs]


def _read(spark: SparkSession, inputs: Sequence[Input], work: ReadPiece, problem: BadInput | None) -> dict[str, Tally]:
    """Write the drafts, and return what is in the quarantine. Raise what stops one process first."""
    found = for_each(spark, work, inputs)
    if problem := next((one for one in found if isinstance(one, BadInput)), problem):
        raise problem
    tallies = {split: Tally() for split in SPLITS}
    for which, tally in zip(inputs, found, strict=True):
        tallies[which.split].append(tally)
    return tallies


def _write(spark: SparkSession, inputs: Sequence[Input], places: Places, task: Task, is_one: bool) -> dict[str, int]:
    """Write the tables, and return the numbers of rows that stay in each split."""
    some, tasks = len(inputs), number_of_tasks(spark, inputs)
    schema = keys_schema(task, is_one)
    keys = map_numbers(spark, some, ReadKeys(inputs, places, schema.names), schema, tasks)
    if is_one:
        keys = with_splits(keys, task)
    found = exceptions(keys)
    if is_one:
        here = keys.where(F.col("split") != SPLITS.index("train")).select("piece", "row", "split")
        found = found.unionByName(here, allowMissingColumns=True)
    every = spark.range(some).withColumnRenamed("id", "piece")
    place = F.expr(f"int(piece * {tasks} div {some})")
    found = found.unionByName(every, allowMissingColumns=True).repartitionById(tasks, place)
    written = answers(found.mapInArrow(WriteTables(inputs, places, task), ANSWER))
    return {split: sum(one.get(split, 0) for one in written) for split in SPLITS}


def _frame(spark: SparkSession, staged: Staging, folder: Path, parts: int, task: Task) -> DataFrame:
    """Return a table that executors have written as a frame. Spark itself reads no object store."""
    if not staged.url:
        return read_parquet(spark, folder)
    addresses = [below(staged.address_of(folder), part_name(number)) for number in range(parts)]
    frame = map_numbers(spark, parts, ReadPart(addresses), from_arrow_schema(checked_schema(task)))
    return frame.persist(StorageLevel.DISK_ONLY)  # the rules read it several times


def _join(files: Sequence[Path], target: Path) -> None:
    with target.open("wb") as stream:
        for file in files:
            with file.open("rb") as part:
                shutil.copyfileobj(part, stream)
