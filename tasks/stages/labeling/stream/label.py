"""Labeling on an executor: write the rows of a partition with their answers, and what cannot be labeled aside."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from include.answers import MODEL_VERSION
from include.artifacts import sync
from include.sections import Prediction
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TrainedModel, worker_runner
from tasks.scoring.predictions import answer_columns, predict
from tasks.sources.json_row import BYTES, parse
from tasks.sources.usable import text_problem
from tasks.stages.labeling.stream.counted import Counted

#: The columns of a labeled row before its texts and the answers.
COLUMNS = ("source", "position", "time", "row")
#: Parquet readers ignore files whose names begin so.
ASIDE = "_aside"


@dataclass(frozen=True)
class LabelRows:
    """Labels the rows of a partition; a function for DataFrame.mapInArrow.

    Each task writes part-N.parquet and _aside-N.jsonl, and yields what it has counted as JSON.

    Attributes:
        model: The model.
        version: The version of the model, for the column MODEL_VERSION.
        texts: The columns with the texts.
        prediction: The experiment's prediction section, which determines the batches.
        folder: The folder for the files.
    """

    model: TrainedModel
    version: str
    texts: tuple[str, ...]
    prediction: Prediction
    folder: str

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of all chunks. Yield one text."""
        task = TaskContext.get()
        assert task is not None  # only Spark calls this function, on executors
        runner = worker_runner(self.model, self.prediction)
        counted = Counted.nothing(runner.head.kind)
        name, attempt = f"{task.partitionId():05d}", f".{task.taskAttemptId()}"
        # Each attempt, such as a speculative one, writes its own files, so that only complete files are renamed.
        part, aside = Path(self.folder, f".part-{name}{attempt}"), Path(self.folder, f".aside-{name}{attempt}")
        writer = None
        with aside.open("w", encoding="utf-8") as stream:
            for chunk in chunks:
                table, entries = self._labeled(chunk, runner, counted)
                stream.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
                if len(table):
                    writer = writer or pq.ParquetWriter(part, table.schema)
                    writer.write_table(table)
        if writer is not None:
            writer.close()
            _finish(part, f"part-{name}.parquet")
        _finish(aside, f"{ASIDE}-{name}.jsonl")
        yield pa.RecordBatch.from_arrays([pa.array([counted.as_json()])], ["counted"])

    def _labeled(
        self, chunk: pa.RecordBatch, runner: Runner, counted: Counted
    ) -> tuple[pa.Table, list[dict[str, Any]]]:
        """Return the labeled rows, and the entries of the others."""
        found = [self._texts_of(row, problem, runner) for row, problem in _rows(chunk)]
        good = np.array([not reason for _, reason in found], bool)
        reasons = [reason for _, reason in found if reason]
        entries = [
            {"source": row["source"], "position": row["position"], "reason": reason, "row": row["row"]}
            for row, reason in zip(chunk.filter(pa.array(~good)).to_pylist(), reasons, strict=True)
        ]
        counted.reasons.update(reasons)
        texts = [texts for texts, reason in found if not reason]
        return self._answered(chunk.filter(pa.array(good)), texts, runner, counted), entries

    def _texts_of(self, row: bytes | None, problem: str | None, runner: Runner) -> tuple[tuple[str, ...], str]:
        """Return the texts of a row, or why it cannot be labeled."""
        if problem or row is None:
            return (), problem or "no row"
        values, reason = parse(row)
        texts = [values.get(name) for name in self.texts]
        for name, text in zip(self.texts, texts, strict=True):
            if not reason and name not in values:
                reason = f"no column {name}"
            if not reason and not isinstance(text, str | None):
                reason = f"{name} {'has bytes that are not UTF-8' if _is_binary(text) else 'is not a text'}"
            reason = reason or text_problem(None if text is None else text.encode(), runner.head.cleaning)
        return tuple(map(str, texts)), reason

    def _answered(
        self, rows: pa.RecordBatch, texts: Sequence[tuple[str, ...]], runner: Runner, counted: Counted
    ) -> pa.Table:
        """Return the rows with their answers, and count them."""
        if not texts:
            return pa.table({})
        head, logits = runner.head, np.concatenate(list(runner.logits(texts)))
        predicted, probabilities = predict(head.kind, logits, head.thresholds)
        answers = answer_columns(head.kind, head.label_names, predicted, probabilities)
        columns: dict[str, Any] = {name: rows.column(name) for name in COLUMNS}
        columns |= {name: list(column) for name, column in zip(self.texts, zip(*texts, strict=True), strict=True)}
        table = pa.table({**columns, **answers, MODEL_VERSION: pa.repeat(self.version, len(rows))})
        counted.add(table, self.texts, probabilities, head)
        return table


def _is_binary(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {BYTES}


def _rows(chunk: pa.RecordBatch) -> Iterator[tuple[bytes | None, str | None]]:
    rows, problems = chunk.column("row").cast(pa.large_binary()), chunk.column("problem")
    return zip(rows.to_pylist(), problems.to_pylist(), strict=True)


def _finish(file: Path, name: str) -> None:
    sync(file)
    file.replace(file.with_name(name))
