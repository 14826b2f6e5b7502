"""Find texts that occur in more than one row: in train and in dev or test, or with different labels.

Those of two splits are compared by overlap_key, those of one split by text_key (tasks/sources/normalize.py).
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
    """Facts about the n rows of one split's draft, with one value per row.

    Attributes:
        labels_of_text: The number of different labels that the row's text has in its split, [n]; 0 in test.
        overlaps: In train, whether the text also occurs in dev or test; in dev and test, whether it occurs in train;
            [n].
        stays: Whether the row stays in its split, [n]. Overlapping rows are removed from train.
        also_in: For train, the other splits, each with whether the text occurs there too, [n].
    """

    labels_of_text: npt.NDArray[np.int64]
    overlaps: Mask
    stays: Mask
    also_in: Mapping[str, Mask] = field(default_factory=dict)


def find_facts(drafts: Mapping[str, Path]) -> dict[str, Facts]:
    """Compare the drafts of the splits.

    Only the keys and the labels are read into memory, 24 bytes per row.

    Args:
        drafts: Split to the Parquet file that `tables.read_split` wrote.

    Returns:
        Split to facts.
    """
    frames = {split: pd.read_parquet(drafts[split], columns=["text_key", "overlap_key", "label"]) for split in SPLITS}
    train, dev, test = (frames[split]["overlap_key"].to_numpy() for split in SPLITS)
    in_dev, in_test = np.isin(train, dev), np.isin(train, test)
    labels = {split: _labels_of_text(frame) for split, frame in frames.items()}
    leaves = in_dev | in_test
    return {
        "train": Facts(labels["train"], leaves, ~leaves, {"dev": in_dev, "test": in_test}),
        "dev": Facts(labels["dev"], np.isin(dev, train), np.ones(len(dev), bool)),
        "test": Facts(labels["test"], np.isin(test, train), np.ones(len(test), bool)),
    }


def write_overlap(path: Path, draft: Path, facts: Facts, file: str) -> None:
    """Write the rows that are removed from train, one JSON object per line.

    Args:
        path: The file to write.
        draft: The draft of train.
        facts: The facts about train.
        file: The source of the train split, which becomes part of each line.
    """
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
