"""A multi-label data set of one's own goes from text to predictions through all stages, with a tiny encoder."""

from __future__ import annotations

import csv
import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy.special import expit
from sklearn.metrics import f1_score
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from include.runs import Run
from tasks.encoder.labels import from_column
from tests.tasks.all_stages import run_all_stages
from tests.tasks.encoder.samples import label_sets, tiny_encoder

LABELS = ("acting", "film music", "plot")
TEST, EXPECTED = label_sets(30, seed=3)

pytestmark = pytest.mark.long


def rows(count: int, seed: int) -> list[dict[str, str]]:
    sentences, sets = label_sets(count, seed)
    cells = ["; ".join(np.array(LABELS)[np.array(row) == 1]) for row in sets]
    return [{"sentence": text, "label": cell} for (text,), cell in zip(sentences, cells, strict=True)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All stages on CSV files, in which an empty cell stands for a row without a label."""
    folder = tmp_path_factory.mktemp("multi-label")
    splits = {"train": rows(240, seed=1), "dev": rows(60, seed=2), "test": rows(len(TEST), seed=3)}
    return run_all_stages(folder, splits, {
        "data": {"task": "multi-label", "labels": LABELS, "label_separator": ";"},
        "model": {"name": str(tiny_encoder(folder / "encoder")), "pooling": "mean"},
        "preprocessing": {"max_length": 24},
        "training": {"epochs": 10, "patience": 0},
        "gate": {"f1_micro": 0.8, "f1_macro": 0.7, "slices": {"label:plot": 0.5}},
    })  # fmt: skip


def test_the_test_rows_are_labeled_well(run: Run) -> None:
    found = pq.read_table(run.artifact("predict").path / "predictions.parquet").to_pydict()
    predicted = [[int(label in labels) for label in LABELS] for labels in found["prediction"]]
    assert f1_score(EXPECTED, predicted, average="micro") > 0.85
    assert run.artifact("predict").manifest.result["label_counts"] == dict(
        zip(LABELS, np.sum(predicted, axis=0).tolist(), strict=True)
    )


def test_predictions_follow_the_thresholds_of_the_model(run: Run) -> None:
    config = json.loads((run.artifact("train").path / "model" / "config.json").read_text())
    with (run.artifact("predict").path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["row", "prediction", *(f"probability:{label}" for label in LABELS)]
    for row in rows:
        limits = zip(LABELS, config["thresholds"], strict=True)
        expected = [label for label, limit in limits if float(row[f"probability:{label}"]) >= limit]
        assert row["prediction"] == ";".join(expected)


def test_plain_transformers_gives_the_same_probabilities(run: Run) -> None:
    model = run.artifact("train").path / "model"
    found = pq.read_table(run.artifact("predict").path / "predictions.parquet").to_pydict()
    plain = pipeline("text-classification", model=str(model), top_k=None, trust_remote_code=True)
    answers: Any = plain([text for (text,) in TEST], truncation=True)
    for row, scores in enumerate(answers):
        expected = {label: found[f"probability:{label}"][row] for label in LABELS}
        assert {one["label"]: one["score"] for one in scores} == pytest.approx(expected, abs=1e-5)


def test_plain_transformers_gives_the_same_logits(run: Run) -> None:
    model = run.artifact("train").path / "model"
    sentences = label_sets(60, seed=2)[0]
    tokenizer = AutoTokenizer.from_pretrained(model)
    inputs = tokenizer([text for (text,) in sentences], padding=True, return_tensors="pt")
    plain = AutoModelForSequenceClassification.from_pretrained(model, trust_remote_code=True).eval()
    assert plain.config.problem_type == "multi_label_classification"
    with torch.inference_mode():
        logits = plain(**inputs).logits.double()
    found = pq.read_table(run.artifact("evaluate").path / "predictions.parquet")
    raw = plain.config.calibration_temperature * logits.numpy() / found["temperature"].to_numpy()[:, None]
    assert found["probabilities"].to_pylist() == pytest.approx(expit(raw), abs=1e-5)


def test_the_gate_reads_cross_fitted_metrics(run: Run) -> None:
    table = pq.read_table(run.artifact("evaluate").path / "predictions.parquet")
    labels, predicted = from_column(table["label"]), from_column(table["prediction"])
    assert labels.tolist() == [list(row) for row in label_sets(60, seed=2)[1]]
    summary = json.loads((run.artifact("evaluate").path / "metrics.json").read_text())
    checks = {check["key"]: check for check in run.artifact("gate").manifest.result["checks"]}
    for average in ("micro", "macro"):
        value = f1_score(labels, predicted, average=average)
        assert summary["metrics"][f"f1_{average}"] == pytest.approx(value)
        assert checks[f"gate.f1_{average}"]["value"] == pytest.approx(value)
    recall = predicted[labels[:, 2] == 1, 2].mean()
    assert checks['gate.slices["label:plot"]']["value"] == pytest.approx(recall)
    assert summary["other_thresholds"]["tuned on the same rows"]["f1_macro"] >= summary["metrics"]["f1_macro"]


def test_the_report_names_labels_and_thresholds(run: Run) -> None:
    html = (run.artifact("evaluate").path / "report.html").read_text()
    for text in ("film music", "Micro F1 is over all labels", "cross-fitted", "tuned on the same rows", "passes"):
        assert text in html


def test_the_predictions_file_holds_cells_of_labels(run: Run) -> None:
    lines = (run.artifact("export").path / "predictions.tsv").read_text().splitlines()
    with (run.artifact("predict").path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert lines == ["index\tprediction", *(f"{row['row']}\t{row['prediction']}" for row in rows)]
    assert any(line.endswith("\t") for line in lines), "a row may have no label"
