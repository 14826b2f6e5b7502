"""The table as it is scored: the rows with a text in one Arrow file, the others set aside with their reasons."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import pyarrow as pa

from include.answers import LABEL, MODEL_VERSION, PREDICTION, PROBABILITY, probability_columns
from include.artifacts import sync, write_json
from include.stages import BadInput
from tasks.encoder.spec import HeadSpec
from tasks.inference.labeler import text_problem
from tasks.sources.chunks import Chunk
from tasks.sources.table import found_instead
from tasks.sources.values import is_text, python_value

ROWS, ASIDE, COUNTS = "rows.arrow", "aside.jsonl", "counts.json"
_SHOWN = 200  # characters of a value that the file of rows set aside keeps


@dataclass(frozen=True)
class Counts:
    """How many rows the input has, and why some of them were set aside.

    Attributes:
        rows_in: The number of rows in the input.
        rows: The number of those that are scored.
        reasons: The number of the others by reason.
    """

    rows_in: int
    rows: int
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def aside(self) -> int:
        """The number of rows that were set aside."""
        return sum(self.reasons.values())

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `take_in` has counted."""
        return cls(**json.loads((folder / COUNTS).read_text(encoding="utf-8")))


def take_in(chunks: Iterable[tuple[str, Chunk]], texts: Sequence[str], head: HeadSpec, folder: Path) -> Counts:
    """Write the rows that can be scored to ROWS, the others to ASIDE, and what was counted to COUNTS.

    Args:
        chunks: The name of a file and some of its rows, for all rows of the input.
        texts: The columns with the texts.
        head: The head of the model, with the names of its labels and the rules by which it cleans texts.
        folder: The folder to write into.

    Raises:
        BadInput: If the columns do not fit, or no row can be scored.
    """
    rows_in, rows, reasons = 0, 0, Counter[str]()
    with (folder / ASIDE).open("w", encoding="utf-8") as aside, _Writer(folder / ROWS) as writer:
        for file, chunk in chunks:
            check_columns(file, chunk.rows.schema, texts, head.label_names)
            problems = _problems(chunk.rows, texts, head.cleaning)
            for entry in _entries(chunk, problems):
                reasons[entry["reason"]] += 1
                _write(aside, {"file": file, **entry})
            good = np.array([not problem for problem in problems], bool)
            writer.write(file, chunk.rows.filter(pa.array(good)))
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


def slice_of(file: Path, part: int, parts: int) -> pa.Table:
    """Return one of `parts` nearly equal parts of the rows in an Arrow file, which is memory-mapped."""
    table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
    first, end = (len(table) * at // parts for at in (part, part + 1))
    return table.slice(first, end - first)


def check_columns(file: str, schema: pa.Schema, texts: Sequence[str], labels: Sequence[str]) -> None:
    """Raise BadInput if the table lacks a text column, or has a column that scoring adds."""
    for name in texts:
        if name not in schema.names:
            remedy = "Name the column with the text in scoring.text, and the second of a pair in scoring.text2"
            raise BadInput(f"{file} has no column {name!r}; {found_instead(schema.names, name, remedy)}")
        if not is_text(schema.field(name).type):
            raise BadInput(f"{file}: the column {name!r} has the type {schema.field(name).type}, but it must be text")
    added = {name.casefold() for name in (PREDICTION, LABEL, PROBABILITY, MODEL_VERSION, *probability_columns(labels))}
    for name in schema.names:
        if name.casefold() in added:
            raise BadInput(f"{file} has a column {name!r}, a name that the predictions need: rename the column")


class _Writer:
    """Writes batches of one schema to an Arrow file."""

    def __init__(self, path: Path) -> None:
        self._sink = pa.OSFile(str(path), "wb")
        self._writer: Any = None
        self._schema: pa.Schema = None

    def __enter__(self) -> Self:
        return self

    def write(self, file: str, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._schema, self._writer = batch.schema, pa.ipc.new_file(self._sink, batch.schema)
        if not batch.schema.equals(self._schema):
            raise BadInput(f"{file} has other columns than the first file of the table: score it by itself")
        self._writer.write_batch(batch)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
        self._sink.close()


def _problems(rows: pa.RecordBatch, texts: Sequence[str], rules: Sequence[str]) -> list[str]:
    """Return for each row why it cannot be scored, or ""."""
    columns = [rows.column(name).cast(pa.large_binary()).to_pylist() for name in texts]
    return [next(filter(None, (text_problem(value, rules) for value in row)), "") for row in zip(*columns, strict=True)]


def _entries(chunk: Chunk, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what is kept of each row that is set aside."""
    for row in chunk.unreadable:
        yield {"line": row.place, "reason": row.reason, "text": row.text[:_SHOWN]}
    for at, reason in enumerate(problems):
        if reason:
            values = {name: _shown(chunk.rows.column(name)[at]) for name in chunk.rows.schema.names}
            yield {"line": chunk.places[at], "reason": reason, "row": values}


def _shown(value: pa.Scalar) -> str | None:
    found = python_value(value, "replace")
    return None if found is None else str(found)[:_SHOWN]


def _write(stream: TextIO, entry: dict[str, Any]) -> None:
    stream.write(json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8") + "\n")
