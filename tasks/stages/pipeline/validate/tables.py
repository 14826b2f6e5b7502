"""Convert records to Parquet: the tables that later stages read, and the facts that the rules check.

Each split is read once, in chunks, into a draft with the table and three facts per row (text_key, overlap_key and
characters). The
facts that depend on all splits (overlap.py) are added when the draft is turned into the final table.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from include.glue import Task
from tasks.encoder.labels import TYPES
from tasks.sources import Record, Source
from tasks.sources.normalize import overlap_key, text_key
from tasks.sources.quarantine import Quarantine, QuarantineSummary, problem
from tasks.stages.pipeline.validate.overlap import Facts

_CHUNK = 20_000  # rows in memory at a time
_OF_THE_ROW = pa.schema([("text_key", pa.int64()), ("overlap_key", pa.int64()), ("characters", pa.int64())])
_OF_ALL_ROWS = pa.schema([("labels_of_text", pa.int64()), ("overlaps", pa.bool_())])

#: What the columns mean that the rules check and no file has.
MEANINGS = {
    "row": "the number of the row in its split",
    "line": "the line of the file that it was read from",
    "text_key": "a number that equal texts of a split have in common",
    "overlap_key": "a number that texts have in common which count as equal in different splits",
    "characters": "the length of the text",
    "labels_of_text": "how many different labels the rows with this text have",
    "overlaps": "whether the text also occurs in train; for train, whether it occurs in dev or test",
}


def sentence_columns(task: Task) -> list[str]:
    """Return the names of the sentence columns: sentence1 and, for a task on pairs, sentence2."""
    return [f"sentence{number}" for number in range(1, len(task.sentences) + 1)]


def table_schema(task: Task) -> pa.Schema:
    """Return the schema of train.parquet, dev.parquet and test.parquet. In test, all labels are null."""
    sentences = [(name, pa.string()) for name in sentence_columns(task)]
    return pa.schema([("row", pa.int64()), ("line", pa.int64()), *sentences, ("label", TYPES[task.kind])])


def checked_schema(task: Task) -> pa.Schema:
    """Return the schema of the tables that the rules check: the table's columns and all facts."""
    return pa.schema([*table_schema(task), *_OF_THE_ROW, *_OF_ALL_ROWS])


def read_split(source: Source, split: str, task: Task, draft: Path, quarantine: Quarantine) -> QuarantineSummary:
    """Write the usable rows of a split to the draft, and quarantine the others.

    Args:
        source: The source of the split.
        split: train, dev or test.
        task: The task, which decides whether a row is usable.
        draft: The Parquet file to write.
        quarantine: Receives the unusable rows.

    Returns:
        The numbers of rows that were read and quarantined.
    """
    schema = pa.schema([*table_schema(task), *_OF_THE_ROW])
    records, read = source.records(split), 0
    with pq.ParquetWriter(draft, schema) as writer:
        while chunk := list(islice(records, _CHUNK)):
            read += len(chunk)
            writer.write_table(pa.Table.from_pylist(list(_usable(chunk, task, split, quarantine)), schema))
    return quarantine.summary(read, task)


def finish_split(draft: Path, task: Task, facts: Facts, checked: Path, table: Path) -> int:
    """Write the rows that stay in the split to two files: with all facts for the rules, and as the final table.

    Args:
        draft: The file that `read_split` wrote.
        task: The task.
        facts: The facts about the draft's rows.
        checked: The file to write with all facts.
        table: The file to write as the final table.

    Returns:
        The number of rows that stay.
    """
    schema, plain = checked_schema(task), table_schema(task)
    start = written = 0
    with pq.ParquetWriter(checked, schema) as with_facts, pq.ParquetWriter(table, plain) as final:
        for batch in pq.ParquetFile(draft).iter_batches(_CHUNK):
            part = slice(start, start + len(batch))
            columns = [*batch.columns, pa.array(facts.labels_of_text[part]), pa.array(facts.overlaps[part])]
            rows = pa.Table.from_arrays(columns, schema=schema).filter(pa.array(facts.stays[part]))
            with_facts.write_table(rows)
            final.write_table(rows.select(plain.names))
            start, written = part.stop, written + len(rows)
    return written


def _usable(records: list[Record], task: Task, split: str, quarantine: Quarantine) -> Iterator[dict[str, Any]]:
    for record in records:
        reason = problem(record, task, split)
        if reason:
            quarantine.add(record, reason)
        else:
            yield _as_row(record, task, split)


def _as_row(record: Record, task: Task, split: str) -> dict[str, Any]:
    return {
        "row": record.row,
        "line": record.line,
        **dict(zip(sentence_columns(task), record.sentences, strict=True)),
        "label": None if split == "test" else _label(record.label, task),
        "text_key": text_key(record.sentences),
        "overlap_key": overlap_key(record.sentences),
        "characters": max(map(len, record.sentences)),
    }


def _label(text: str, task: Task) -> int | float | str:
    match task.kind:
        case "regression":
            return float(text)
        case "multilabel":
            chosen = task.labels_in(text)
            return "".join("1" if label in chosen else "0" for label in task.labels)
        case "classification":
            return task.labels.index(text)
