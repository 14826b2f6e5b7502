"""Labeling on an executor: write the rows of a partition with their answers, and what cannot be labeled aside."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from include.answers import LABEL, PREDICTION, probability_columns
from tasks.encoder.cleaning import clean_all
from tasks.inference.labeler import Labeler, text_problem
from tasks.inference.parts import write_parquet
from tasks.scoring.drift import Profile, Tally
from tasks.sources.json_row import BYTES, parse
from tasks.staging import below, whole_file

#: The columns of a labeled row before its texts and the answers.
COLUMNS = ("source", "position", "time", "row")
#: Parquet readers ignore files whose names begin so.
ASIDE = "_aside"


@dataclass(frozen=True)
class LabelRows:
    """Writes part-N.parquet and _aside-N.jsonl for a partition, and yields its tally; a function for mapInArrow."""

    labeler: Labeler
    batch: int
    texts: tuple[str, ...]
    folder: str  # its address

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of all chunks. Yield one text."""
        task = TaskContext.get()
        assert task is not None  # only Spark calls this function, on executors
        number = f"{task.partitionId():05d}"
        tally = [self._nothing()]
        place = below(self.folder, f"{ASIDE}-{number}.jsonl")
        with whole_file(place) as file, file.open("w", encoding="utf-8") as aside:
            write_parquet(self._labeled(chunks, aside, tally), below(self.folder, f"part-{number}.parquet"))
        yield pa.RecordBatch.from_arrays([pa.array([json.dumps(tally[0].as_json())])], ["tally"])

    def _labeled(self, chunks: Iterable[pa.RecordBatch], aside: TextIO, tally: list[Tally]) -> Iterator[pa.Table]:
        """Yield the labeled rows. Write the others aside, and add what is counted to the one tally in the list."""
        for chunk in chunks:
            written = chunk.column("row").cast(pa.large_binary()).to_pylist()
            found = list(map(self._texts_of, written, chunk.column("problem").to_pylist()))
            reasons = [reason for _, reason in found if reason]
            good = np.array([not reason for _, reason in found], bool)
            for row, reason in zip(chunk.filter(pa.array(~good)).to_pylist(), reasons, strict=True):
                entry = {"source": row["source"], "position": row["position"], "reason": reason, "row": row["row"]}
                aside.write(json.dumps(entry, ensure_ascii=False) + "\n")
            if reasons:
                tally[0] += self._nothing(reasons)
            texts = [texts for texts, reason in found if not reason]
            columns = {name: [row[at] for row in texts] for at, name in enumerate(self.texts)}
            rows = chunk.filter(pa.array(good)).select(COLUMNS)
            rows = pa.record_batch({name: rows.column(name) for name in COLUMNS} | columns)
            for table in self.labeler.label([rows], self.texts):
                tally[0] += self._tally(table)  # a list of all would outgrow the memory
                yield table

    def _texts_of(self, row: bytes | None, problem: str | None) -> tuple[tuple[str, ...], str]:
        if problem or row is None:
            return (), problem or "no row"
        values, reason = parse(row)
        texts = [values.get(name) for name in self.texts]
        for name, text in zip(self.texts, texts, strict=True):
            if not reason and name not in values:
                reason = f"no column {name}"
            if not reason and not isinstance(text, str | None):
                is_binary = isinstance(text, dict) and set(text) == {BYTES}
                reason = f"{name} {'has bytes that are not UTF-8' if is_binary else 'is not a text'}"
            reason = reason or text_problem(None if text is None else text.encode(), self.labeler.head.cleaning)
        return tuple(map(str, texts)), reason

    def _nothing(self, reasons: Iterable[str] = ()) -> Tally:
        return Tally.nothing(self.batch, self.labeler.version, self.labeler.head.kind, reasons)

    def _tally(self, table: pa.Table) -> Tally:
        head = self.labeler.head
        labels = table[LABEL if head.kind == "classification" else PREDICTION].to_pylist()
        probabilities = [table[name].to_numpy() for name in probability_columns(head.label_names)]
        if None in labels:  # drift is that of the rows, whether they are answered or not
            likely = [head.label_names[at] for at in np.argmax(probabilities, axis=0)]
            labels = [label or other for label, other in zip(labels, likely, strict=True)]
        cleaned = [clean_all(table[name].to_pylist(), head.cleaning) for name in self.texts]
        profile = Profile.of(head.kind, list(zip(*cleaned, strict=True)), labels)
        confidence = float(np.max(probabilities, axis=0).sum()) if probabilities else None
        return Tally(self.batch, self.labeler.version, profile, confidence)
