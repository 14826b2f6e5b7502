"""Documents longer than the encoder go from text to predictions in windows, with one result each wherever they are."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import pipeline

from include.named_experiments import build
from include.runs import Run
from tasks.encoder.loading import load_trained
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TorchBackend
from tasks.runner import run_stage
from tests.tasks.all_stages import run_all_stages
from tests.tasks.encoder.samples import stories, tiny_encoder

LABELS = ["bad", "good"]
TEST = [text for (text,) in stories(40, seed=3)[0]]

pytestmark = pytest.mark.long


def rows(count: int, seed: int) -> list[dict[str, str]]:
    texts, labels = stories(count, seed)
    return [
        {"id": f"n{at}", "sentence": text, "label": LABELS[label]}
        for at, ((text,), label) in enumerate(zip(texts, labels, strict=True))
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All stages on texts of up to 90 words, for an encoder that is asked to read 24 tokens."""
    folder = tmp_path_factory.mktemp("long")
    splits = {"train": rows(160, seed=1), "dev": rows(60, seed=2), "test": rows(len(TEST), seed=3)}
    return run_all_stages(folder, splits, {
        "data": {"task": "classification", "labels": LABELS, "keep": ["id"]},
        "model": {"name": str(tiny_encoder(folder / "encoder")), "pooling": "mean"},
        "preprocessing": {"max_length": 24, "long": "windows", "stride": 6},
        "training": {"epochs": 4},
        "gate": {"accuracy": 0.8, "slices": {"length:long": 0.5}},
    })  # fmt: skip


def predictions(run: Run) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = pq.read_table(run.artifact("predict").path / "predictions.parquet").to_pydict()
    return found


def score(texts: list[str], model: Path, folder: Path) -> pa.Table:
    """The table of the stage score for these texts."""
    (folder / "table.csv").write_text("\n".join(["text", *texts]) + "\n")
    scoring = {"scoring": {"input": str(folder / "table.csv"), "model": str(model)}}
    artifact = run_stage("score", build(scoring, "the test's experiment"), Run(folder / "runs" / "score"))
    return pq.read_table(artifact.path / "scored.parquet")


def test_every_document_is_counted_and_shown_once(run: Run) -> None:
    result = run.artifact("preprocess").manifest.result
    assert result["rows"] == {"train": 160, "dev": 60, "test": 40}
    assert all(result["windows"][split] > 1.5 * rows for split, rows in result["rows"].items())
    assert predictions(run)["row"] == list(range(40)) and predictions(run)["id"] == [f"n{at}" for at in range(40)]
    dev = pq.read_table(run.artifact("evaluate").path / "predictions.parquet")
    assert dev["row"].to_pylist() == list(range(60))
    with (run.artifact("evaluate").path / "predictions.csv").open(newline="") as file:
        assert sorted(row["sentence1"] for row in csv.DictReader(file)) == sorted(t for (t,) in stories(60, seed=2)[0])
    summary = json.loads((run.artifact("evaluate").path / "metrics.json").read_text())
    assert summary["rows"] == 60 and sum(map(sum, summary["confusion"])) == 60
    assert run.artifact("gate").manifest.result["rows"] == {"expected": 60, "measured": 60, "predictions": 60}
    lines = (run.artifact("export").path / "predictions.tsv").read_text().splitlines()
    assert len(lines) == 41


def test_training_evaluates_documents(run: Run) -> None:
    accuracy = run.artifact("evaluate").manifest.result["metrics"]["accuracy"]
    assert run.artifact("train").manifest.result["best"] == accuracy > 0.8


def test_all_who_label_raw_text_agree(run: Run, tmp_path: Path) -> None:
    found, model = predictions(run), run.artifact("train").path / "model"
    chances = np.array([found[f"probability:{label}"] for label in LABELS]).T
    assert len(set(found["predicted_label"])) == 2
    [logits] = Runner(model, TorchBackend(load_trained(model), threads=1)).logits([(text,) for text in TEST])
    exponentials = np.exp(logits.astype(np.float64))
    np.testing.assert_allclose(exponentials / exponentials.sum(1, keepdims=True), chances, atol=1e-5)
    for form in ("torch-fp32", "onnxruntime-fp32"):
        package = mlflow.pyfunc.load_model(str(run.artifact("package").path), model_config={"form": form})
        answers = package.predict(pd.DataFrame({"sentence": TEST}))
        assert answers["label"].tolist() == found["predicted_label"]
        np.testing.assert_allclose(np.stack(answers["probabilities"].tolist()), chances, atol=1e-4)
    scored = score(TEST, model, tmp_path)
    assert scored["predicted_label"].to_pylist() == found["predicted_label"]
    np.testing.assert_allclose(scored["probability:good"].to_numpy(), chances[:, 1], atol=1e-5)


def test_plain_transformers_reads_the_first_window(run: Run) -> None:
    found, model = predictions(run), run.artifact("train").path / "model"
    plain = pipeline("text-classification", model=str(model), top_k=None, trust_remote_code=True)
    answers: Any = plain(TEST, truncation=True)
    good = np.array([next(one["score"] for one in scores if one["label"] == "good") for scores in answers])
    difference = np.abs(good - np.array(found["probability:good"]))
    fits = np.array([len(text.split()) <= 22 for text in TEST])
    assert difference[fits].max() < 1e-5 < 1e-2 < difference[~fits].max()


def test_many_windows_are_scored_in_several_tables_and_in_order(run: Run, tmp_path: Path) -> None:
    words, random = np.array(["good", "bad", "word1", "word2"]), np.random.default_rng(5)
    texts = [" ".join(random.choice(words, 530, p=random.dirichlet(np.ones(4)))) for _ in range(1200)]
    model = run.artifact("train").path / "model"
    scored = score(texts, model, tmp_path)
    assert scored["text"].to_pylist() == texts
    some = [0, 255, 256, 299, 300, 1199]  # a part has 300 texts of 33 windows, and its first table 256
    [logits] = Runner(model, TorchBackend(load_trained(model), threads=1)).logits([(texts[at],) for at in some])
    chances = 1 / (1 + np.exp((logits[:, 0] - logits[:, 1]).astype(np.float64)))
    np.testing.assert_allclose(scored["probability:good"].to_numpy()[some], chances, atol=1e-5)
