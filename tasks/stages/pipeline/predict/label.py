"""Predict a split: its source is the token ids of documents, its sink a table of all answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from include.answers import ROW
from tasks.encoder.batching import TokenTable
from tasks.inference.labeler import Labeler
from tasks.inference.parts import part_file, write_parts
from tasks.staging import below, fetched
from tasks.workers import Workers


def predict(workers: Workers, labeler: Labeler, split: Path, folder: Path) -> pa.Table:
    """Return the number of each row (`row`) and its answers, sorted by it. There is a part for each file of the split.

    The parts are written into the folder.
    """
    names = tuple(sorted(file.name for file in split.glob("part-*.arrow")))
    numbers = range(len(names))
    write_parts(workers, _LabelPart(labeler, workers.staged.share(split), names), numbers, folder)
    return pa.concat_tables([pq.read_table(part_file(folder, number)) for number in numbers]).sort_by(ROW)


@dataclass(frozen=True)
class _LabelPart:
    """Labels the documents in a file of a split."""

    labeler: Labeler
    split: str  # the address of the folder
    names: tuple[str, ...]  # of the files

    def __call__(self, number: int) -> Iterator[pa.Table]:
        yield self.labeler.label_tokens(TokenTable.open(fetched(below(self.split, self.names[number]))))
