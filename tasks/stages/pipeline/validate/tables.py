"""Write the tables that later stages read, and those with all facts about the rows, which the rules check.

The rows are first written to a draft, with the facts that do not depend on other rows. Equal texts are then found in
the keys of all splits (tasks/sources/normalize.py), and rows of train that also occur in dev or test are removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from include.glue import Task
from tasks.encoder.labels import TYPES
from tasks.sources import Record, limits
from tasks.sources.normalize import overlap_key, text_key
from tasks.sources.quarantine import QuarantineSummary

Mask = npt.NDArray[np.bool_]
#: The splits whose texts are compared with those of a split.
OTHERS = {"train": ("dev", "test"), "dev": ("train",), "test": ("train",)}
_CHUNK = 20_000  # rows in memory at a time, of not many more than limits.BYTES characters
_ROWS_IN_GROUP = 5_000  # of a table, which preprocess reads in partitions of as many rows
_SHOWN_TEXT = 200  # characters
_OF_THE_ROW = pa.schema([("text_key", pa.int64()), ("overlap_key", pa.int64()), ("characters", pa.int64())])
_FILE = pa.field("file", pa.string())  # of the row, for overlap.jsonl
#: The places of the row's labels in the alphabet, of rows that have yet to be split.
RANKS = pa.field("ranks", pa.list_(pa.int32()))
_OF_ALL_ROWS = pa.schema([("labels_of_text", pa.int64()), ("overlaps", pa.bool_())])


@dataclass(frozen=True)
class Tables:
    """The tables that were written: for each split what is in the quarantine, the rows that stay, and what is checked.

    A frame of pandas or Spark has the table of a split with all facts.
    """

    summaries: Mapping[str, QuarantineSummary]
    rows: Mapping[str, int]
    frames: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """Facts about the n rows of a draft that depend on other rows.

    labels_of_text counts the labels that a row's text has in its split, [n]; 0 in test. also_in says for train whether
    the text occurs in dev and in test, [n] each, and for these whether it occurs in train. here says whether a row
    belongs to the split, [n].
    """

    labels_of_text: npt.NDArray[np.int64]
    also_in: Mapping[str, Mask]
    here: Mask

    @property
    def overlaps(self) -> Mask:
        """Whether the text occurs in any of the other splits, [n]."""
        found: Mask = np.logical_or.reduce(list(self.also_in.values()))
        return found


def table_schema(task: Task) -> pa.Schema:
    """Return the schema of the tables train.parquet, dev.parquet and test.parquet. In test, all labels are null."""
    sentences = [(name, pa.string()) for name in task.sentence_columns]
    return pa.schema([("row", pa.int64()), ("line", pa.int64()), *sentences, ("label", TYPES[task.kind])])


def checked_schema(task: Task) -> pa.Schema:
    """Return the schema of the tables that the rules check: the table's columns and all facts."""
    return pa.schema([*table_schema(task), *_OF_THE_ROW, *_OF_ALL_ROWS])


def checked_folder(scratch: Path, split: str) -> Path:
    """Return the table of a split with all facts."""
    return scratch / f"{split}.checked.parquet"


def part_name(number: int) -> str:
    """Return the name of a file of a table, which is a folder as Spark writes it: the names have the rows' order."""
    return f"part-{number:05d}.parquet"


def write_draft(records: Iterator[Record], task: Task, split: str, file: Path, is_one: bool = False) -> None:
    """Write usable records. Those that have yet to be split (`is_one`) are in train, and have the column RANKS."""
    schema = pa.schema([*table_schema(task), *_OF_THE_ROW, _FILE, *([RANKS] if is_one else [])])
    with pq.ParquetWriter(file, schema, use_dictionary=[_FILE.name]) as writer:
        while len(rows := pa.table(_columns(islice(records, _CHUNK), task, split, is_one), schema)):
            writer.write_table(rows)


def _columns(records: Iterable[Record], task: Task, split: str, is_one: bool) -> dict[str, list[Any]]:
    """Return the columns of a draft. No record is kept: the garbage collector would look at each of them."""
    columns: dict[str, list[Any]] = {name: [] for name in (*table_schema(task).names, *_OF_THE_ROW.names, _FILE.name)}
    ranks = {label: rank for rank, label in enumerate(sorted(task.labels))}
    row, line, *sentences, label, texts, overlaps, characters, file = columns.values()
    columns[RANKS.name] = found = []
    size = 0
    for record in records:
        row.append(record.row)
        line.append(record.line)
        for column, sentence in zip(sentences, record.sentences, strict=True):
            column.append(sentence)
        label.append(None if split == "test" else _label(record.label, task))
        texts.append(text_key(record.sentences))
        overlaps.append(overlap_key(record.sentences))
        characters.append(max(map(len, record.sentences)))
        file.append(record.file)
        if is_one:
            found.append([ranks.get(one) for one in task.labels_in(record.label)])
        size += sum(map(len, record.sentences))
        if size > limits.BYTES:
            break
    return columns


def _label(text: str, task: Task) -> int | float | str:
    match task.kind:
        case "regression":
            return float(text)
        case "multilabel":
            chosen = task.labels_in(text)
            return "".join("1" if label in chosen else "0" for label in task.labels)
        case "classification":
            return task.labels.index(text)


def _chunks(draft: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a draft as they were written, so that no more of them are in memory now."""
    for group in range(draft.num_row_groups):
        yield from draft.iter_batches(_CHUNK, [group], columns)


def write_overlap(draft: pq.ParquetFile, facts: Facts, file: Path) -> None:
    """Write the rows that are removed from train, one JSON object per line."""
    start, overlaps = 0, facts.overlaps
    with file.open("w", encoding="utf-8") as stream:
        for batch in _chunks(draft, ["line", "sentence1", _FILE.name]):
            for position in np.flatnonzero(overlaps[start : start + len(batch)]):
                line, text, origin = (column[int(position)].as_py() for column in batch.columns)
                also_in = [split for split, mask in facts.also_in.items() if mask[start + position]]
                entry = {"file": origin, "line": line, "also_in": also_in, "text": text[:_SHOWN_TEXT]}
                stream.write(json.dumps(entry, ensure_ascii=False) + "\n")
            start += len(batch)


def write_table(draft: pq.ParquetFile, task: Task, split: str, facts: Facts, checked: Path, table: Path) -> int:
    """Write the rows that stay in a split, with all facts for the rules and as the table, and return their number."""
    schema, plain, overlaps = checked_schema(task), table_schema(task), facts.overlaps
    stays = facts.here & ~overlaps if split == "train" else facts.here
    start = written = 0
    with pq.ParquetWriter(checked, schema) as with_facts, pq.ParquetWriter(table, plain) as final:
        for batch in _chunks(draft, [*plain.names, *_OF_THE_ROW.names]):
            part = slice(start, start + len(batch))
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            if split == "test":  # of a file with all rows, they are known
                columns["label"] = pa.nulls(len(batch), TYPES[task.kind])
            columns |= {"labels_of_text": pa.array(facts.labels_of_text[part]), "overlaps": pa.array(overlaps[part])}
            rows = pa.table(columns, schema).filter(pa.array(stays[part]))
            with_facts.write_table(rows)
            final.write_table(rows.select(plain.names), _ROWS_IN_GROUP)
            start, written = part.stop, written + len(rows)
    return written
