"""Read the splits in one process, and compare their rows with pandas, which starts fast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from include.glue import SPLITS, Task
from tasks.sources import Source
from tasks.sources.quarantine import Quarantine
from tasks.stages.pipeline.validate.tables import (
    OTHERS,
    Facts,
    Tables,
    checked_folder,
    part_name,
    write_draft,
    write_overlap,
    write_table,
)  # fmt: skip


@contextmanager
def validated(task: Task, source: Source, scratch: Path, output: Path) -> Iterator[Tables]:
    """Write the tables and the lists of rows that are set aside, and open what the rules check."""
    tables = write_splits(task, source, scratch, output)
    yield replace(tables, frames={split: pd.read_parquet(checked_folder(scratch, split)) for split in source.splits})


def write_splits(task: Task, source: Source, scratch: Path, output: Path) -> Tables:
    """Write the tables and the lists of rows that are set aside."""
    summaries, rows = {}, {}
    drafts = {split: scratch / f"{split}.draft.parquet" for split in SPLITS}
    with (output / "quarantine.jsonl").open("w", encoding="utf-8") as stream:
        for split, file in drafts.items():
            quarantine = Quarantine(stream, split, source.file(split))
            write_draft(quarantine.usable(source.records(split), task), task, split, file)
            summaries[split] = quarantine.tally.summary(task)
    for split, facts in _find_facts(drafts).items():
        draft = pq.ParquetFile(drafts[split])
        if split == "train":
            write_overlap(draft, facts, output / "overlap.jsonl")
        folders = checked_folder(scratch, split), output / f"{split}.parquet"
        for folder in folders:
            folder.mkdir()
        rows[split] = write_table(draft, task, split, facts, *(folder / part_name(0) for folder in folders))
    return Tables(summaries, rows)


def _find_facts(drafts: dict[str, Path]) -> dict[str, Facts]:
    """Compare the drafts. Only the keys and the labels are read into memory, 24 bytes per row."""
    columns = ["text_key", "overlap_key", "label"]
    frames = {split: pd.read_parquet(draft, columns=columns) for split, draft in drafts.items()}
    keys = {split: frame["overlap_key"].to_numpy() for split, frame in frames.items()}
    return {
        split: Facts(
            frame.groupby("text_key")["label"].transform("nunique").to_numpy(np.int64),
            {other: np.isin(keys[split], keys[other]) for other in OTHERS[split]},
            np.ones(len(frame), bool),
        )
        for split, frame in frames.items()
    }
