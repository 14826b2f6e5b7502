"""Every kind of baseline goes from text to an exported prediction, by the stages that encoders go through."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from transformers import pipeline

from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput
from tasks.runner import run_stage
from tests.tasks.all_stages import NAMES, named_rows, run_all_stages
from tests.tasks.encoder.samples import reviews, tiny_encoder

TEST, EXPECTED = reviews(20, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kinds share a home, and so what validate and preprocess have made."""
    folder = tmp_path_factory.mktemp("baselines")
    tiny_encoder(folder / "encoder")
    return folder


def run_all(folder: Path, kind: str, rate: float) -> Run:
    splits = {"train": named_rows(128, seed=1), "dev": named_rows(32, seed=2), "test": named_rows(len(TEST), seed=3)}
    return run_all_stages(folder, splits, {
        "data": {"task": "classification", "labels": list(NAMES)},
        "model": {"kind": kind, "name": str(folder / "encoder")},
        "preprocessing": {"max_length": 24},
        "training": {"epochs": 3, "learning_rate": rate},
        "gate": {"accuracy": 0.6, "beat_baseline": False},
    })  # fmt: skip


@pytest.mark.parametrize(("kind", "accuracy"), [("tfidf", 0.75), ("textcnn", 0.9), ("frozen", 0.6)])
def test_from_text_to_predictions(spark: SparkSession, folder: Path, kind: str, accuracy: float) -> None:
    run = run_all(folder, kind, 1e-3)
    with (run.artifact("predict").path / "predictions.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    right = [row["predicted_label"] == NAMES[label] for row, label in zip(found, EXPECTED, strict=True)]
    assert sum(right) / len(right) >= accuracy
    assert (run.artifact("export").path / "predictions.tsv").is_file()
    assert "accuracy" in (run.artifact("evaluate").path / "report.html").read_text()
    training = json.loads((run.artifact("train").path / "training.json").read_text())
    assert training["best"] >= accuracy
    assert training["rows_per_second"] > 0

    experiment = build(run.record()["experiment"], "the test's experiment")
    with pytest.raises(BadInput, match=f"model.kind {kind} is a baseline, and only fine-tuned encoders are published"):
        run_stage("publish", experiment, run)

    model = run.artifact("train").path / "model"
    plain = pipeline("text-classification", model=str(model), trust_remote_code=True)
    expected = plain([text for (text,) in TEST], truncation=True)
    assert [row["predicted_label"] for row in found] == [row["label"] for row in expected]
    assert [float(row["probability"]) for row in found] == pytest.approx([row["score"] for row in expected], abs=1e-5)
