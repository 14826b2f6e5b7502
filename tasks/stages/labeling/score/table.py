"""The table as it is scored: the rows with a text in one Arrow file, the others set aside with their reasons."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from include.answers import EXPLANATION, LABEL, MODEL_VERSION, PREDICTION, PROBABILITY, RISK, probability_columns
from include.artifacts import sha256, sync, write_json
from include.experiment import Experiment
from include.fields.labeling import Scoring
from include.scratch import scratch_folder
from include.stages import BadInput, Transient
from tasks.encoder.spec import HeadSpec
from tasks.inference.chosen_model import Model
from tasks.inference.labeler import text_problem
from tasks.sources.lake import is_lake, scored_table
from tasks.sources.table import Chunk, check_text, chunks, found_columns, parquet_chunks, table_files
from tasks.sources.text_files import format_of
from tasks.sources.values import python_value
from tasks.stages.labeling.score.json_lines import json_chunks
from tasks.staging import Staging, opened, staging

log = logging.getLogger(__name__)

#: The formats of tables whose columns are all text.
TEXT = (".csv", ".tsv")
ROWS, ASIDE, COUNTS = "rows.arrow", "aside.jsonl", "counts.json"
_SHOWN = 200  # characters of a value that the file of rows set aside keeps


@dataclass(frozen=True)
class Counts:
    """The numbers of rows in the input and of those that are scored, and of those set aside by reason."""

    rows_in: int
    rows: int
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def aside(self) -> int:
        """The number of rows that are set aside."""
        return sum(self.reasons.values())

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `take_in` has counted."""
        return cls(**json.loads((folder / COUNTS).read_text(encoding="utf-8")))


def scored_files(scoring: Scoring) -> list[Path]:
    """Return the files of the table; none if it is in a database or of Delta Lake or Iceberg."""
    return [] if scoring.is_database or is_lake(scoring) else table_files(scoring.input)


def table_digest(files: Sequence[Path]) -> str:
    """Return a digest of the files of a table."""
    digests = [f"{format_of(file)} {sha256(file)}" for file in files]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def read_table(experiment: Experiment, model: Model, digest: str, kept: Path) -> None:
    """Write the folder `table` of the checkpoints with a single rename."""
    scoring, head = experiment.scoring, model.trained.head()
    more = (*((EXPLANATION,) if scoring.explain else ()), *(RISK if experiment.prediction.max_risk else ()))
    with scratch_folder(kept, ".table") as folder:
        (folder / "table").mkdir()
        try:
            counts = take_in(_chunks(experiment, folder / "read"), scoring.texts, head, folder / "table", more)
        finally:  # a file that is still being copied is also malformed
            if (files := scored_files(scoring)) and table_digest(files) != digest:
                raise Transient(f"{scoring.input} was changed while it was read, so nothing was kept: run score again")
        (folder / "table").rename(kept / "table")
    log.info("%d rows: %d to score, %d set aside %s", counts.rows_in, counts.rows, counts.aside, counts.reasons or "")


def _chunks(experiment: Experiment, folder: Path) -> Iterator[tuple[str, Chunk]]:
    scoring = experiment.scoring
    files = scored_files(scoring)
    if lake := scored_table(scoring):
        folder.mkdir()
        yield from ((lake.name, chunk) for chunk in parquet_chunks(lake.copy(folder)))
    elif not files:
        from tasks.spark import session  # files are read without Spark
        from tasks.stages.labeling.score.database import database_chunks, driver

        with session(experiment, "score", driver(scoring)) as spark, staging(spark) as staged:
            found = database_chunks(spark, staged, scoring, folder)
        yield from ((scoring.table, chunk) for chunk in found)
    elif format_of(files[0]) == ".jsonl":
        yield from json_chunks(files, scoring.texts)
    else:
        for file in files:
            yield from ((str(file), chunk) for chunk in chunks(file, ", ".join(scoring.texts)))


def take_in(
    table: Iterable[tuple[str, Chunk]], texts: Sequence[str], head: HeadSpec, folder: Path, more: Sequence[str] = ()
) -> Counts:
    """Write the rows that can be scored to ROWS, the others to ASIDE, and what was counted to COUNTS.

    `more` are the columns that scoring adds if it is asked to.
    """
    rows_in, rows, reasons = 0, 0, Counter[str]()
    writer: Any = None
    with ExitStack() as files:
        aside = files.enter_context((folder / ASIDE).open("w", encoding="utf-8"))
        sink = files.enter_context(pa.OSFile(str(folder / ROWS), "wb"))
        for file, chunk in table:
            check_columns(file, chunk.rows.schema, texts, (*probability_columns(head.label_names), *more))
            if writer is None:
                first = chunk.rows.schema
                writer = files.enter_context(pa.ipc.new_file(sink, first))
            if not chunk.rows.schema.equals(first):
                raise BadInput(f"{file} has other columns than the first file of the table: score it by itself")
            columns = [chunk.rows.column(name).cast(pa.large_binary()).to_pylist() for name in texts]
            problems = [_problem(values, head.cleaning) for values in zip(*columns, strict=True)]
            for entry in _entries(chunk, problems):
                reasons[entry["reason"]] += 1
                line = json.dumps({"file": file, **entry}, ensure_ascii=False)
                aside.write(line.encode("utf-8", "replace").decode("utf-8") + "\n")
            good = np.array([not problem for problem in problems], bool)
            writer.write_batch(chunk.rows.filter(pa.array(good)))
            rows_in += len(problems) + len(chunk.unreadable)
            rows += int(good.sum())
    if not rows_in:
        raise BadInput("the table has no rows, so there is nothing to score: add some, or correct scoring.input")
    if not rows:
        found = ", ".join(f"{count} x {reason}" for reason, count in reasons.items())
        raise BadInput(f"the table has no row that can be scored ({found}): correct scoring.input or scoring.text")
    counts = Counts(rows_in, rows, dict(reasons))
    for name in (ROWS, ASIDE):
        sync(folder / name)
    write_json(folder / COUNTS, asdict(counts))
    return counts


@dataclass(frozen=True)
class Rows:
    """The rows of an Arrow file, which executors read in parts."""

    address: str
    ends: tuple[int, ...]  # the number of rows up to the end of each of its batches

    @classmethod
    def of(cls, staged: Staging, file: Path) -> Self:
        """Share the file with the executors."""
        with pa.ipc.open_file(pa.memory_map(str(file))) as reader:
            batches = map(reader.get_batch, range(reader.num_record_batches))
            return cls(staged.share(file), tuple(accumulate(map(len, batches))))

    def __len__(self) -> int:
        return self.ends[-1]

    def part(self, number: int, parts: int) -> Iterator[pa.RecordBatch]:
        """Yield one of `parts` nearly equal parts of the rows. No other batches of the file are read."""
        first, end = (len(self) * at // parts for at in (number, number + 1))
        with opened(self.address) as stream, pa.ipc.open_file(stream) as reader:
            for batch, (start, stop) in enumerate(pairwise((0, *self.ends))):
                if start < end and first < stop:
                    yield reader.get_batch(batch).slice(max(first - start, 0), min(end, stop) - max(first, start))


def check_columns(file: str, schema: pa.Schema, texts: Sequence[str], more: Sequence[str]) -> None:
    """Raise BadInput if the table lacks a text column, or has a column that scoring adds, also one of `more`."""
    for name in texts:
        if name not in schema.names:
            remedy = "Name the column with the text in scoring.text, and the second of a pair in scoring.text2"
            raise BadInput(f"{file} has no column {name!r}; found: {found_columns(schema.names, [name], remedy)}")
        check_text(file, name, schema.field(name).type)
    added = {name.casefold() for name in (PREDICTION, LABEL, PROBABILITY, MODEL_VERSION, *more)}
    for name in schema.names:
        if name.casefold() in added:
            raise BadInput(f"{file} has a column {name!r}, a name that the predictions need: rename the column")


def _problem(values: Iterable[bytes | None], rules: Sequence[str]) -> str:
    return next(filter(None, (text_problem(value, rules) for value in values)), "")


def _entries(chunk: Chunk, problems: list[str]) -> Iterator[dict[str, Any]]:
    for row in chunk.unreadable:
        yield {"line": row.line, "reason": row.problem, "text": row.text[:_SHOWN]}
    for at, reason in enumerate(problems):
        if reason:
            values = {name: python_value(chunk.rows.column(name)[at], "replace") for name in chunk.rows.schema.names}
            shown = {name: None if value is None else str(value)[:_SHOWN] for name, value in values.items()}
            yield {"line": chunk.places[at], "reason": reason, "row": shown}
