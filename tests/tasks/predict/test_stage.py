"""The stage: predictions equal those of one process, however Spark cuts the rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyspark.sql import SparkSession

from include.artifacts import Artifact
from include.experiment import Experiment
from include.named import build
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable
from tasks.encoder.inference import predict_logits
from tasks.encoder.models import copy_tokenizer, load_pretrained
from tasks.encoder.spec import HeadSpec
from tasks.predict.progress import progress
from tasks.predict.stage import predict, run

ROWS = 300


def experiment(task: str, **prediction: Any) -> Experiment:
    return build({"data": {"task": task, "source": "glue", "path": "unused"}, "prediction": prediction}, "test")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder test/ of preprocess: rows of 3 to 60 ids in two parts, numbered with gaps."""
    folder = tmp_path_factory.mktemp("preprocess") / "test"
    folder.mkdir()
    random = np.random.default_rng(0)
    ids = [random.integers(2, 30, size=random.integers(3, 60)).tolist() for _ in range(ROWS)]
    lengths = pa.array([len(row) for row in ids], pa.uint16())
    columns = {
        "row": pa.array(range(0, 3 * ROWS, 3), pa.int64()), "label": pa.nulls(ROWS, pa.int64()), "length": lengths,
        "first": lengths, "input_ids": pa.array(ids, pa.list_(pa.uint8())), "sentence1": pa.array(["text"] * ROWS),
    }  # fmt: skip
    table = pa.table(columns)
    for number, part in enumerate((table[:100], table[100:])):
        with pa.ipc.new_file(folder / f"part-{number:05d}.arrow", table.schema) as writer:
            writer.write_table(part)
    return folder


def trained(folder: Path, encoder: Path, spec: HeadSpec) -> Path:
    """An artifact of train: the encoder under a head wide enough for predictions to differ."""
    torch.manual_seed(0)
    model = load_pretrained(encoder, spec)
    torch.nn.init.normal_(model.head.weight, std=1.0)
    (folder / "model").mkdir()
    model.save(folder / "model")
    copy_tokenizer(encoder, folder / "model")
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    spec = HeadSpec("classification", 2, label_names=("negative", "positive"))
    return trained(tmp_path_factory.mktemp("train"), encoder, spec)


def in_one_process(model: Path, split: Path) -> Any:
    from tasks.encoder.models import load_trained

    return predict_logits(load_trained(model), TokenTable.open(split))


@pytest.mark.parametrize(("parts", "batching"), [(1, "tiers"), (3, "tiers"), (4, "tokens"), (7, "tiers")])
def test_predictions_are_those_of_one_process(
    spark: SparkSession, classifier: Path, split: Path, parts: int, batching: str
) -> None:
    made = predict(spark, experiment("SST-2", batching=batching, batch_tokens=512), classifier / "model", split, parts)
    logits = torch.from_numpy(in_one_process(classifier / "model", split))
    chances = logits.double().softmax(dim=1).max(dim=1)
    assert made["row"].to_pylist() == list(range(0, 3 * ROWS, 3))
    assert made["prediction"].to_pylist() == chances.indices.tolist()
    assert len(set(made["prediction"].to_pylist())) == 2
    np.testing.assert_allclose(made["probability"].to_numpy(), chances.values.numpy(), atol=1e-5)


def stage(output: Path, task: str, train: Artifact, preprocess: Artifact) -> Outcome:
    run_of = Run(output.parent / "runs" / "one")
    return run(Context(experiment(task), run_of, {"train": train, "preprocess": preprocess}, output))


def test_the_stage_writes_classes(
    spark: SparkSession, classifier: Path, split: Path, artifact: Callable[[Path, str], Artifact], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    result = stage(output, "SST-2", artifact(classifier, "train"), artifact(split.parent, "preprocess")).result
    table = pq.read_table(output / "predictions.parquet")
    assert table.schema.equals(pa.schema({"row": pa.int64(), "prediction": pa.int64(), "probability": pa.float64()}))
    assert result["rows"] == table.num_rows == ROWS
    assert result["label_counts"]["positive"] == sum(table["prediction"].to_pylist())
    assert sum(result["label_counts"].values()) == ROWS
    assert result["partitions"] == 4 and result["rows_per_second"] > 0


def test_the_stage_writes_scores_as_they_are(
    spark: SparkSession,
    encoder: Path,
    split: Path,
    artifact: Callable[[Path, str], Artifact],
    tmp_path: Path,
) -> None:
    output, train = tmp_path / "out", tmp_path / "train"
    output.mkdir()
    train.mkdir()
    trained(train, encoder, HeadSpec("regression", 1, score_range=(0.0, 5.0)))
    result = stage(output, "STS-B", artifact(train, "train"), artifact(split.parent, "preprocess")).result
    table = pq.read_table(output / "predictions.parquet")
    scores = in_one_process(train / "model", split)[:, 0]
    np.testing.assert_allclose(table["prediction"].to_numpy(), scores, atol=1e-4)
    assert table["probability"].null_count == ROWS
    assert scores.min() < 0 or scores.max() > 5  # nothing is clipped here
    assert result["score_mean"] == pytest.approx(scores.mean(), abs=1e-3)


def test_progress_is_told(caplog: pytest.LogCaptureFixture) -> None:
    from threading import Event

    asked = Event()

    def done() -> int:
        asked.set()
        return 40

    with caplog.at_level(logging.INFO), progress(done, 90, seconds=0.01):
        assert asked.wait(10)
    assert "predicted 40 of 90 rows" in caplog.text
