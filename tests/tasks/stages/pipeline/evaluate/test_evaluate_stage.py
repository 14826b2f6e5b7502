"""The stage evaluate with a real, tiny, untrained encoder, and the gate on what it wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from include.artifacts import Artifact, Manifest
from include.experiment import Experiment
from include.named_experiments import build
from include.runs import Run
from include.stages import STAGES, BadInput, ExitCode, result_line
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import copy_tokenizer, load_pretrained
from tasks.encoder.models import Classifier
from tasks.encoder.spec import HeadSpec
from tasks.scoring.folds import FOLDS
from tasks.scoring.predictions import Array
from tasks.stages.pipeline.evaluate.stage import run
from tasks.stages.pipeline.gate import stage as gate
from tests.tasks.contexts import surroundings
from tests.tasks.encoder.samples import reviews, tiny_encoder, write_split

CLASSES = HeadSpec("classification", 2, max_length=32, label_names=("negative", "positive"))
SCORE = HeadSpec("regression", 1, max_length=32, score_range=(0.0, 5.0))
STSB = {"data": {"task": "STS-B", "source": "glue", "path": "glue"}}


def trained(folder: Path, spec: HeadSpec) -> Classifier:
    """What train leaves, but for the training."""
    (folder / "model").mkdir(parents=True)
    model = load_pretrained(tiny_encoder(folder.parent / "encoder"), spec).eval()
    torch.nn.init.normal_(model.output_layer.weight, std=0.5)
    model.save(folder / "model")
    copy_tokenizer(folder.parent / "encoder", folder / "model", model, spec.max_length)
    (folder / "metrics.jsonl").write_text(
        '{"step": 1, "loss": 0.7}\n{"step": 2, "loss": 0.6}\n{"step": 2, "accuracy": 0.5, "pearson": null}\n'
    )
    return model


def context(folder: Path, experiment: Experiment, rows: int) -> Context:
    """The stage's surroundings, on the made-up artifacts in the folder."""
    results: dict[str, dict[str, Any]] = {"validate": {"rows": {"dev": rows}}, "preprocess": {"rows": {"dev": rows}}}
    inputs = {
        name: Artifact(
            folder / name,
            Manifest(
                name, f"{name}-key", stage.version, stage.part(experiment), {}, "", "a1b2c3", results.get(name, {})
            ),
        )
        for name, stage in STAGES.items()
        if name in ("validate", "preprocess", "train", "evaluate")
    }
    (folder / "evaluate").mkdir()
    return surroundings(experiment, Run(folder / "runs" / "one"), inputs, folder / "evaluate")


def alone(model: Classifier, table: TokenTable, row: int) -> Array:
    """Logits of a row in a batch of its own."""
    batch = table.batch(np.array([row]))
    with torch.inference_mode():
        logits: Array = model(batch.input_ids, batch.attention_mask, batch.token_type_ids).numpy()[0]
    return logits


def judged(evaluated: Context, folder: Path) -> Outcome:
    """What the gate says of evaluate's files."""
    folder.mkdir()
    return gate.run(replace(evaluated, output=folder), evaluated.experiment.thresholds)


def test_a_classifier(tmp_path: Path) -> None:
    model = trained(tmp_path / "train", CLASSES)
    sentences, labels = reviews(60)
    table = TokenTable.open(write_split(tmp_path / "preprocess" / "dev", sentences, labels))
    evaluated = context(tmp_path, build({"gate": {"accuracy": -1, "beat_baseline": False}}, "test"), 60)
    outcome = run(evaluated, evaluated.experiment.thresholds)

    predictions = pq.read_table(tmp_path / "evaluate" / "predictions.parquet").to_pydict()
    assert predictions["row"] == list(range(60))
    assert predictions["label"] == labels
    for row in (0, 17, 59):
        logits = torch.from_numpy(alone(model, table, row)) / predictions["temperature"][row]
        assert predictions["probabilities"][row] == pytest.approx(logits.softmax(0).tolist(), abs=1e-5)
    assert len(set(predictions["temperature"])) == FOLDS
    right = np.mean(np.equal(predictions["prediction"], labels))
    assert outcome.result["metrics"]["accuracy"] == pytest.approx(right)
    assert (outcome.result["rows"], outcome.result["files"]) == (
        60,
        {"report": "report.html", "predictions": "predictions.csv"},
    )
    rows = [json.loads(line) for line in (tmp_path / "evaluate" / "rows.jsonl").read_text().splitlines()]
    explained = {row["row"]: row for row in rows if "explanation" in row}
    assert set(explained) == set(json.loads((tmp_path / "evaluate" / "metrics.json").read_text())["mistakes"])
    for row in explained.values():
        assert [word["word"] for word in row["explanation"]] == row["text"].split()
    html = (tmp_path / "evaluate" / "report.html").read_text(encoding="utf-8")
    assert html.count("<mark") == 2 + sum(len(row["explanation"]) for row in explained.values())
    assert all(fact in html for fact in ("train-key", "a1b2c3", "all-MiniLM-L6-v2", f"{right:.4f}"))
    assert judged(evaluated, tmp_path / "gate").exit_code == ExitCode.DONE


def test_a_regression_with_a_held_out_split(tmp_path: Path) -> None:
    trained(tmp_path / "train", SCORE)
    pairs = [(first, second) for (first,), (second,) in zip(reviews(30)[0], reviews(30, seed=1)[0], strict=True)]
    scores = np.random.default_rng(0).uniform(0, 5, size=30).tolist()
    for split in ("dev", "heldout"):
        write_split(tmp_path / "preprocess" / split, pairs, scores)
    evaluated = context(tmp_path, build(STSB, "test"), 30)
    run(evaluated, evaluated.experiment.thresholds)
    summary = json.loads((tmp_path / "evaluate" / "metrics.json").read_text())
    assert summary["heldout"]["metrics"] == summary["metrics"]
    outcome = judged(evaluated, tmp_path / "gate")
    assert outcome.exit_code == ExitCode.GATE_FAILED
    assert "below gate.pearson = 0.8597" in outcome.message


def test_a_model_that_says_one_score_only_fails_the_gate(tmp_path: Path) -> None:
    model = trained(tmp_path / "train", SCORE)
    torch.nn.init.zeros_(model.output_layer.weight)
    model.save(tmp_path / "train" / "model")
    write_split(tmp_path / "preprocess" / "dev", [("good", "bad")] * 20, np.linspace(0, 5, 20).tolist())
    evaluated = context(tmp_path, build(STSB | {"gate": {"pearson": -1}}, "test"), 20)
    outcome = run(evaluated, evaluated.experiment.thresholds)
    assert outcome.result["metrics"]["pearson"] is None
    result_line(outcome.result)
    assert "pearson is missing or undefined" in judged(evaluated, tmp_path / "gate").message


def test_a_diverged_model_is_refused(tmp_path: Path) -> None:
    model = trained(tmp_path / "train", CLASSES)
    torch.nn.init.constant_(model.output_layer.bias, float("nan"))
    model.save(tmp_path / "train" / "model")
    write_split(tmp_path / "preprocess" / "dev", *reviews(5))
    with pytest.raises(BadInput, match=r"training diverged: lower training\.learning_rate"):
        run(context(tmp_path, build({}, "test"), 5), {})
    assert list((tmp_path / "evaluate").iterdir()) == []


def test_a_model_of_an_earlier_version_of_train_is_refused(tmp_path: Path) -> None:
    tested = context(tmp_path, Experiment(), rows=4)
    train = tested.inputs["train"]
    old = replace(train, manifest=replace(train.manifest, version=train.manifest.version - 1))
    with pytest.raises(BadInput, match="was made by another version of the stage train: run train again"):
        run(replace(tested, inputs={**tested.inputs, "train": old}), {})


def test_no_dev_rows_are_refused(tmp_path: Path) -> None:
    trained(tmp_path / "train", CLASSES)
    write_split(tmp_path / "preprocess" / "dev", [], [], parts=1)
    with pytest.raises(BadInput, match="contains no rows"):
        run(context(tmp_path, build({}, "test"), 0), {})
