"""A folder with an encoder of any family goes from text to predictions, which plain transformers repeats."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from transformers import pipeline

from include.experiment import Experiment
from include.named import build
from include.runs import Run
from include.stages import PIPELINE
from tasks.runner import run_stage
from tests.tasks.encoder.families import FAMILIES, family
from tests.tasks.encoder.samples import reviews

TEST = reviews(20, seed=3)[0]


def experiment(folder: Path, kind: str) -> Experiment:
    """Write an encoder and data below the folder, and return an experiment with them."""
    for split, count, seed in (("train", 64, 1), ("dev", 32, 2), ("test", len(TEST), 3)):
        sentences, labels = reviews(count, seed)
        rows = [f"{text},{('bad', 'good')[label]}\n" for (text,), label in zip(sentences, labels, strict=True)]
        (folder / f"{split}.csv").write_text("".join(["sentence,label\n", *rows]))
    files = {split: f"{split}.csv" for split in ("train", "dev", "test")}
    values = {
        "data": {
            "task": "classification", "source": "files", "path": str(folder), "labels": ["bad", "good"], **files,
        },
        "model": {"name": str(family(folder / "encoder", kind)), "pooling": "native"},
        "preprocessing": {"max_length": 12},
        "training": {"epochs": 4, "batch_size": 8, "learning_rate": 5e-3, "ranks": 1, "precision": "fp32"},
        "gate": {"accuracy": 0, "beat_baseline": False},
    }  # fmt: skip
    return build(values, "the test's experiment")


@pytest.mark.long
@pytest.mark.parametrize("kind", FAMILIES)
def test_from_text_to_predictions(tmp_path: Path, kind: str) -> None:
    run, wanted = Run(tmp_path / "home" / "runs" / kind), experiment(tmp_path, kind)
    for stage in PIPELINE:
        run_stage(stage, wanted, run)
    with (run.artifact("predict").path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    plain = pipeline("text-classification", model=str(run.artifact("train").path / "model"))
    found = plain([text for (text,) in TEST], truncation=True)
    assert [row["predicted_label"] for row in rows] == [row["label"] for row in found]
    assert [float(row["probability"]) for row in rows] == pytest.approx([row["score"] for row in found], abs=1e-5)
