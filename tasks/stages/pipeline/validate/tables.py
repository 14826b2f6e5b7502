"""Convert records to Parquet: the tables that later stages read, and the facts that the rules check.

Each split is read once, in chunks, into a draft with three facts per row. Equal texts are then found in the keys of all
splits (tasks/sources/normalize.py), and rows of train that also occur in dev or test are removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from include.glue import SPLITS, Task
from tasks.encoder.labels import TYPES
from tasks.sources import Record, Source
from tasks.sources.normalize import overlap_key, text_key
from tasks.sources.quarantine import Quarantine, QuarantineSummary

Mask = npt.NDArray[np.bool_]
_CHUNK = 20_000  # rows in memory at a time
_SHOWN_TEXT = 200  # characters
_OF_THE_ROW = pa.schema([("text_key", pa.int64()), ("overlap_key", pa.int64()), ("characters", pa.int64())])
_FILE = pa.field("file", pa.string())  # of the row, for overlap.jsonl
_OF_ALL_ROWS = pa.schema([("labels_of_text", pa.int64()), ("overlaps", pa.bool_())])


@dataclass(frozen=True)
class Facts:
    """Facts about the n rows of one split's draft that depend on other rows.

    labels_of_text counts the labels that a row's text has in its split, [n]; 0 in test. also_in says for train whether
    the text occurs in dev and in test, [n] each, and for these whether it occurs in train.
    """

    labels_of_text: npt.NDArray[np.int64]
    also_in: Mapping[str, Mask]

    @property
    def overlaps(self) -> Mask:
        """Whether the text occurs in any of the other splits, [n]."""
        found: Mask = np.logical_or.reduce(list(self.also_in.values()))
        return found


def sentence_columns(task: Task) -> list[str]:
    """Return the names of the sentence columns: sentence1 and, for a task on pairs, sentence2."""
    return [f"sentence{number}" for number in range(1, len(task.sentences) + 1)]


def table_schema(task: Task) -> pa.Schema:
    """Return the schema of the tables train.parquet, dev.parquet and test.parquet. In test, all labels are null."""
    sentences = [(name, pa.string()) for name in sentence_columns(task)]
    return pa.schema([("row", pa.int64()), ("line", pa.int64()), *sentences, ("label", TYPES[task.kind])])


def checked_schema(task: Task) -> pa.Schema:
    """Return the schema of the tables that the rules check: the table's columns and all facts."""
    return pa.schema([*table_schema(task), *_OF_THE_ROW, *_OF_ALL_ROWS])


def checked_file(scratch: Path, split: str) -> Path:
    """Return the file with the rows of a split and all facts."""
    return scratch / f"{split}.checked.parquet"


def part_file(table: Path, number: int) -> Path:
    """Return a file of a table, which is a folder as Spark writes it: the rows are in the order of the names."""
    return table / f"part-{number:05d}.parquet"


def read_splits(source: Source, task: Task, scratch: Path, quarantine: Path) -> dict[str, QuarantineSummary]:
    """Write the usable rows of each split to a draft, and all others to the quarantine."""
    with quarantine.open("w", encoding="utf-8") as stream:
        return {
            split: _read_split(source, split, task, scratch, Quarantine(stream, split, source.file(split)))
            for split in SPLITS
        }


def write_tables(task: Task, scratch: Path, output: Path) -> dict[str, int]:
    """Write the tables and overlap.jsonl from the drafts, and return the numbers of rows that stay in each split."""
    facts = _find_facts(scratch)
    _write_overlap(output / "overlap.jsonl", _draft(scratch, "train"), facts["train"])
    return {split: _write_table(split, task, facts[split], scratch, output) for split in SPLITS}


def _draft(scratch: Path, split: str) -> Path:
    return scratch / f"{split}.draft.parquet"


def _read_split(source: Source, split: str, task: Task, scratch: Path, quarantine: Quarantine) -> QuarantineSummary:
    schema = pa.schema([*table_schema(task), *_OF_THE_ROW, _FILE])
    records = quarantine.usable(source.records(split), task)
    with pq.ParquetWriter(_draft(scratch, split), schema) as writer:
        while chunk := [_as_row(record, task, split) for record in islice(records, _CHUNK)]:
            writer.write_table(pa.Table.from_pylist(chunk, schema))
    return quarantine.summary(task)


def _as_row(record: Record, task: Task, split: str) -> dict[str, Any]:
    return {
        "row": record.row,
        "line": record.line,
        **dict(zip(sentence_columns(task), record.sentences, strict=True)),
        "label": None if split == "test" else _label(record.label, task),
        "text_key": text_key(record.sentences),
        "overlap_key": overlap_key(record.sentences),
        "characters": max(map(len, record.sentences)),
        _FILE.name: record.file,
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


def _find_facts(scratch: Path) -> dict[str, Facts]:
    """Compare the drafts. Only the keys and the labels are read into memory, 24 bytes per row."""
    columns = ["text_key", "overlap_key", "label"]
    frames = {split: pd.read_parquet(_draft(scratch, split), columns=columns) for split in SPLITS}
    keys = {split: frame["overlap_key"].to_numpy() for split, frame in frames.items()}
    others = {"train": ("dev", "test"), "dev": ("train",), "test": ("train",)}
    return {
        split: Facts(
            frame.groupby("text_key")["label"].transform("nunique").to_numpy(np.int64),
            {other: np.isin(keys[split], keys[other]) for other in others[split]},
        )
        for split, frame in frames.items()
    }


def _write_overlap(path: Path, draft: Path, facts: Facts) -> None:
    """Write the rows that are removed from train, one JSON object per line."""
    start, overlaps = 0, facts.overlaps
    with path.open("w", encoding="utf-8") as stream:
        for batch in pq.ParquetFile(draft).iter_batches(columns=["line", "sentence1", _FILE.name]):
            for position in np.flatnonzero(overlaps[start : start + len(batch)]):
                line, text, file = (column[int(position)].as_py() for column in batch.columns)
                also_in = [split for split, mask in facts.also_in.items() if mask[start + position]]
                entry = {"file": file, "line": line, "also_in": also_in, "text": text[:_SHOWN_TEXT]}
                stream.write(json.dumps(entry, ensure_ascii=False) + "\n")
            start += len(batch)


def _write_table(split: str, task: Task, facts: Facts, scratch: Path, output: Path) -> int:
    """Write the rows that stay in a split, with all facts for the rules and as the table, and return their number."""
    schema, plain, overlaps = checked_schema(task), table_schema(task), facts.overlaps
    checked, table = checked_file(scratch, split), output / f"{split}.parquet"
    table.mkdir()
    start = written = 0
    names = [*plain.names, *_OF_THE_ROW.names]
    with pq.ParquetWriter(checked, schema) as with_facts, pq.ParquetWriter(part_file(table, 0), plain) as final:
        for batch in pq.ParquetFile(_draft(scratch, split)).iter_batches(_CHUNK, columns=names):
            part = slice(start, start + len(batch))
            columns = [*batch.columns, pa.array(facts.labels_of_text[part]), pa.array(overlaps[part])]
            rows = pa.Table.from_arrays(columns, schema=schema)
            if split == "train":
                rows = rows.filter(pa.array(~overlaps[part]))
            with_facts.write_table(rows)
            final.write_table(rows.select(plain.names))
            start, written = part.stop, written + len(rows)
    return written
