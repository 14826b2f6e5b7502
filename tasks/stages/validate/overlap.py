"""Texts that stand in more than one row: in train and in dev or test, or under different labels.

Texts are compared by text_key (tasks/sources/normalise.py), so case, punctuation and white space do not matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq

from include.glue import SPLITS

Mask = npt.NDArray[np.bool_]
_SHOWN_TEXT = 200  # characters


@dataclass(frozen=True)
class Facts:
    """What is known of the rows of one split's draft, one value a row.

    Attributes:
        labels_of_text: how many different labels the row's text has in its split; 0 in test.
        overlaps: for train, whether the text also stands in dev or test; for those, whether it stands in train.
        stays: whether the row stays in its split; overlapping rows leave train.
        also_in: for train, other split to whether the text stands there too.
    """

    labels_of_text: npt.NDArray[np.int64]
    overlaps: Mask
    stays: Mask
    also_in: Mapping[str, Mask] = field(default_factory=dict)


def find_facts(drafts: Mapping[str, Path]) -> dict[str, Facts]:
    """Compare the drafts with each other. Only keys and labels are in memory, 16 bytes a row."""
    frames = {split: pd.read_parquet(drafts[split], columns=["text_key", "label"]) for split in SPLITS}
    train, dev, test = (frames[split]["text_key"].to_numpy() for split in SPLITS)
    in_dev, in_test = np.isin(train, dev), np.isin(train, test)
    labels = {split: _labels_of_text(frame) for split, frame in frames.items()}
    leaves = in_dev | in_test
    return {
        "train": Facts(labels["train"], leaves, ~leaves, {"dev": in_dev, "test": in_test}),
        "dev": Facts(labels["dev"], np.isin(dev, train), np.ones(len(dev), bool)),
        "test": Facts(labels["test"], np.isin(test, train), np.ones(len(test), bool)),
    }


def write_overlap(path: Path, draft: Path, facts: Facts, file: str) -> None:
    """List the rows that leave train, one JSON object a line."""
    start = 0
    with path.open("w", encoding="utf-8") as stream:
        for batch in pq.ParquetFile(draft).iter_batches(columns=["line", "sentence1"]):
            for position in np.flatnonzero(facts.overlaps[start : start + len(batch)]):
                line, text = (column[int(position)].as_py() for column in batch.columns)
                also_in = [split for split, mask in facts.also_in.items() if mask[start + position]]
                entry = {"file": file, "line": line, "also_in": also_in, "text": text[:_SHOWN_TEXT]}
                stream.write(json.dumps(entry, ensure_ascii=False) + "\n")
            start += len(batch)


def _labels_of_text(frame: pd.DataFrame) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = frame.groupby("text_key")["label"].transform("nunique").to_numpy(np.int64)
    return counts
