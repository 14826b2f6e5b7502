"""A folder with an encoder of any family goes from text to predictions, which plain transformers repeats."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from transformers import pipeline

from tests.tasks.all_stages import named_rows, run_all_stages
from tests.tasks.encoder.families import FAMILIES, family
from tests.tasks.encoder.samples import reviews

TEST = reviews(20, seed=3)[0]


@pytest.mark.long
@pytest.mark.parametrize("kind", FAMILIES)
def test_from_text_to_predictions(tmp_path: Path, kind: str) -> None:
    splits = {"train": named_rows(64, seed=1), "dev": named_rows(32, seed=2), "test": named_rows(len(TEST), seed=3)}
    run = run_all_stages(tmp_path, splits, {
        "data": {"task": "classification", "labels": ["bad", "good"]},
        "model": {"name": str(family(tmp_path / "encoder", kind)), "pooling": "native"},
        "preprocessing": {"max_length": 12},
        "training": {"epochs": 4},
        "gate": {"accuracy": 0, "beat_baseline": False},
    })  # fmt: skip
    with (run.artifact("predict").path / "predictions.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    plain = pipeline("text-classification", model=str(run.artifact("train").path / "model"))
    expected = plain([text for (text,) in TEST], truncation=True)
    assert [row["predicted_label"] for row in found] == [row["label"] for row in expected]
    assert [float(row["probability"]) for row in found] == pytest.approx([row["score"] for row in expected], abs=1e-5)
