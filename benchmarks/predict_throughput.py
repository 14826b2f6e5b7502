"""Rows a second of predictions for text: `.venv/tasks/bin/python -m benchmarks.predict_throughput`.

The rows are the training texts of SST-2 (--data) or of the bundled corpus, and the model is a pretrained encoder with
the head that transformers defines for it, so that every tool can load it. The head is random, unless --model names a
trained model. transformers' pipeline has one process with a thread per core. Everything else runs on Spark, with one
Python worker per core that has one thread and also tokenizes. Models are loaded before the measurement. Ours computes
the model in all forms of the stage package that are exact: fp32, and bf16 if the processor computes in it.

The cases take turns. On a machine that others use too, processor time counts: a case's own is that of all its
processes, the JVM included. Ratios are medians over the rounds of the ratio within a round. The last column is the
share of rows whose label is that of static batches in fp32.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import torch
from pyspark.sql import DataFrame, SparkSession

from benchmarks.packages import untrained
from benchmarks.predictors import Label, documented_udf
from benchmarks.tables import spread, table
from benchmarks.workload import add_arguments, prepare
from include.fields.results import Prediction
from include.named_experiments import load
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.loading import load_trained, read_head
from tasks.inference.packaged_backends import computes
from tasks.inference.trained_model import TrainedModel
from tasks.spark import session
from tasks.stages.pipeline.package.forms import export_onnx, export_openvino
from tasks.workers import partitions

ROWS = 20_000
CORES = len(os.sched_getaffinity(0))
STATIC = Prediction(batching="static")
TIERS = Prediction(batching="tiers")
TOKENS = Prediction(batching="tokens")
PIPELINE_1, PIPELINE_32 = "pipeline, batch 1", "pipeline, batch 32"
UDF, STATIC_32, OLD = "predict_batch_udf, batch 64", "ours, static 32, torch", "ours, tiers, torch (predict of 0.2)"
#: What each of ours is compared with.
AGAINST = (UDF, PIPELINE_32, STATIC_32, OLD)
Predict = Callable[[int], Array]  # takes a number of rows, and returns the logits of the first so many, [rows, classes]


@dataclass(frozen=True)
class Measurement:
    """Rows per second, rows per second of processor time, and logits."""

    per_second: float
    per_cpu_second: float
    logits: Array


def main() -> None:
    """Prepare rows and model once, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="the folder of a trained model with a native head")
    arguments = parser.parse_args()
    rows, rounds = (64, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        workload = prepare(arguments, scratch).with_rows(rows)
        tokens = TokenTable.open(workload.data / "train")
        texts = [text for (text, *_) in tokens.sentences(np.arange(len(tokens)))]
        forms = _forms(arguments.model or untrained(workload.encoder, scratch / "model"), tokens, scratch)
        with session(load("movies", [f"runtime.spark_master=local[{CORES}]"]), "benchmark") as spark:
            print(compare(_cases(spark, forms, texts), len(texts), rounds))


def compare(cases: dict[str, Predict], rows: int, rounds: int) -> str:
    """Measure the cases in turn, and return the table."""
    found: dict[str, list[Measurement]] = {name: [] for name in cases}
    for predict in cases.values():
        predict(min(rows, 64))
    for _ in range(rounds):
        for name, predict in cases.items():
            found[name].append(_measure(predict, rows))
    reference = found[STATIC_32][0].logits.argmax(axis=1)
    header = ("case", "rows/s", "rows/CPU-s, median (lowest to highest)", *(f"CPU x {name}" for name in AGAINST))
    lines = []
    for name, measured in found.items():
        ratios = [f"{_ratio(measured, found[other]):.2f}" for other in AGAINST]
        same = (measured[0].logits.argmax(axis=1) == reference).mean()
        speeds = (spread([one.per_second for one in measured]), spread([one.per_cpu_second for one in measured], 1))
        lines.append([name, *speeds, *ratios, f"{same:.4f}"])
    return table((*header, "labels as in fp32"), lines)


def _ratio(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> float:
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(one.per_cpu_second / other.per_cpu_second for one, other in pairs)


def _measure(predict: Predict, rows: int) -> Measurement:
    before, started = _cpu_seconds(), time.perf_counter()
    logits = predict(rows)
    wall = time.perf_counter() - started
    # A worker that has ended was idle: Spark ends it some time after its last task.
    cpu = sum(seconds - before.get(process, 0) for process, seconds in _cpu_seconds().items())
    return Measurement(rows / wall, rows / cpu, logits)


def _cpu_seconds() -> dict[int, float]:
    """Processor time of this process and of all that it has started, by process id."""
    this = psutil.Process()
    times = {process.pid: process.cpu_times() for process in (this, *this.children(recursive=True))}
    return {process: float(one.user + one.system) for process, one in times.items()}


def _cases(spark: SparkSession, forms: Sequence[TrainedModel], texts: list[str]) -> dict[str, Predict]:
    whole = pa.table({"id": pa.array(range(len(texts)), pa.int64()), "text": texts})
    frame = spark.createDataFrame(whole).repartition(partitions(len(texts)), "id").cache()
    reference = forms[0]
    model = Path(reference.folder)
    pipeline, longest = _pipeline(model), read_head(model).max_length
    cases: dict[str, Predict] = {
        PIPELINE_1: lambda rows: _piped(pipeline, texts[:rows], 1, longest),
        PIPELINE_32: lambda rows: _piped(pipeline, texts[:rows], 32, longest),
        UDF: _on_spark(frame, lambda some: some.select("id", documented_udf(model, longest)("text").alias("logits"))),
        STATIC_32: _ours(frame, Label(reference, STATIC)),
        OLD: _ours(frame, Label(reference, TIERS)),
    }
    return cases | {f"ours, tokens, {form.form}": _ours(frame, Label(form, TOKENS)) for form in forms}


def _ours(frame: DataFrame, label: Label) -> Predict:
    return _on_spark(frame, lambda some: some.mapInArrow(label, "id long, logits array<float>"))


def _on_spark(frame: DataFrame, label: Callable[[DataFrame], DataFrame]) -> Predict:
    def predict(rows: int) -> Array:
        made = label(frame.where(frame["id"] < rows)).toArrow().sort_by("id")
        return np.array(made["logits"].to_pylist())

    return predict


def _pipeline(model: Path) -> Any:
    from transformers import pipeline

    torch.set_num_threads(CORES)
    return pipeline("text-classification", model=str(model), device="cpu", top_k=None, function_to_apply="none")


def _piped(pipeline: Any, texts: list[str], batch_size: int, longest: int) -> Array:
    answers = pipeline(texts, batch_size=batch_size, truncation=True, max_length=longest)
    ids = pipeline.model.config.label2id
    logits = np.empty((len(texts), len(ids)))
    for row, answer in enumerate(answers):
        for one in answer:
            logits[row, ids[one["label"]]] = one["score"]
    return logits


def _forms(model: Path, table: TokenTable, scratch: Path) -> list[TrainedModel]:
    """The model in PyTorch, which is the reference, onnxruntime and OpenVINO."""
    folder, onnx, openvino = str(model), scratch / "model.onnx", scratch / "model.xml"
    export_onnx(load_trained(model).eval(), table, onnx)
    export_openvino(onnx, openvino)
    forms = [TrainedModel(folder, folder), TrainedModel(folder, str(onnx), "onnxruntime")]
    precisions = [precision for precision in ("fp32", "bf16") if computes(precision)]
    return forms + [TrainedModel(folder, str(openvino), "openvino", precision) for precision in precisions]


if __name__ == "__main__":
    main()
