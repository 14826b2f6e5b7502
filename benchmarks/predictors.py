"""What Spark's Python workers run in the benchmark of predictions: our runner, and the UDF that Spark documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from include.fields.results import Prediction
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TrainedModel


@dataclass(frozen=True)
class Label:
    """Computes logits with our runner; a function for DataFrame.mapInArrow on the columns id and text."""

    model: TrainedModel
    prediction: Prediction

    def __call__(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the columns id and logits."""
        batches = list(chunks)
        if not any(map(len, batches)):
            return
        rows = pa.Table.from_batches(batches)
        runner, first = _runner(self.model, self.prediction), 0
        for logits in runner.logits((text,) for text in rows["text"].to_pylist()):
            ids = pa.array(rows["id"].slice(first, len(logits)).to_numpy())
            yield pa.RecordBatch.from_arrays([ids, pa.array(list(logits), pa.list_(pa.float32()))], ["id", "logits"])
            first += len(logits)


@lru_cache  # a Python worker takes part in all cases
def _runner(model: TrainedModel, prediction: Prediction) -> Runner:
    return Runner(Path(model.folder), model.open(threads=1), prediction)


def documented_udf(model: Path, longest: int) -> Any:
    """The function that Spark's documentation of predict_batch_udf describes, with a text column."""
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import ArrayType, FloatType

    folder = str(model)

    def make() -> Callable[[Any], Any]:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        torch.set_num_threads(1)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        classifier = AutoModelForSequenceClassification.from_pretrained(folder).eval()

        def predict(texts: Any) -> Any:
            inputs = tokenizer(
                [str(text) for text in texts], padding=True, truncation=True, max_length=longest, return_tensors="pt"
            )
            with torch.no_grad():
                return classifier(**inputs).logits.numpy()

        return predict

    return predict_batch_udf(make, return_type=ArrayType(FloatType()), batch_size=64)
