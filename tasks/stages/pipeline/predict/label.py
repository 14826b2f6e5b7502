"""Prediction on an executor: turn the documents of a partition of the test table into predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator

from include.sections import Prediction
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.labels import to_column
from tasks.encoder.spec import HeadSpec
from tasks.inference.trained_model import TrainedModel, worker_runner
from tasks.scoring.predictions import predict

#: The columns that are returned for each row, as Spark schemas. The prediction is that of tasks/encoder/labels.py.
SCHEMAS = {
    "classification": "row long, prediction long, probabilities array<double>",
    "multilabel": "row long, prediction string, probabilities array<double>",
    "regression": "row long, prediction double",
}


@dataclass(frozen=True)
class LabelPartition:
    """Predicts the rows of one partition; a function for DataFrame.mapInArrow.

    Attributes:
        model: The model.
        split: The folder of the split in preprocess's artifact.
        prediction: The experiment's prediction section, which determines the batches.
        done: Counts the predicted rows for the driver.
    """

    model: TrainedModel
    split: str
    prediction: Prediction
    done: Accumulator[int]

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of SCHEMAS for the positions of documents in the first column of the chunks."""
        positions = np.concatenate([np.zeros(0, np.int64), *(chunk.column(0).to_numpy() for chunk in chunks)])
        if not len(positions):
            return
        runner, table = worker_runner(self.model, self.prediction), _open(self.split)
        logits = runner.documents(table, positions)
        yield _labeled(table.rows[table.documents[positions]], logits, runner.head)
        self.done.add(len(positions))


@lru_cache(maxsize=1)  # a Python worker processes several partitions
def _open(split: str) -> TokenTable:
    return TokenTable.open(Path(split))


def _labeled(rows: Array, logits: Array, head: HeadSpec) -> pa.RecordBatch:
    """Convert logits [batch, outputs] to predictions and all probabilities, or to the score."""
    predicted, probabilities = predict(head.kind, logits, head.thresholds)
    columns = [pa.array(rows), to_column(predicted)]
    if probabilities is not None:
        every = pa.FixedSizeListArray.from_arrays(pa.array(probabilities.ravel()), logits.shape[1])
        columns.append(every.cast(pa.list_(pa.float64())))
    return pa.RecordBatch.from_arrays(columns, [column.split()[0] for column in SCHEMAS[head.kind].split(", ")])
