"""Homes with what the stage package reads, and packages made from them: tiny models of any family, and rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from include.artifacts import Artifact, Manifest, write_json
from include.experiment import Experiment
from include.named_experiments import build
from include.runs import Run
from include.stages import STAGES
from tasks.encoder import tokens
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import copy_tokenizer, load_pretrained
from tasks.encoder.models import Classifier, divide_logits, predict_logits
from tasks.encoder.spec import THRESHOLDS, HeadSpec
from tasks.inference.packaged_backends import USES
from tasks.runner import run_stage
from tasks.scoring.predictions import predict
from tasks.scoring.risk import EVIDENCE, count
from tests.tasks.encoder.families import family
from tests.tasks.encoder.samples import reviews, write_split

LENGTH = 24
CLASSES = HeadSpec("classification", 2, max_length=LENGTH, label_names=("negative", "positive"))
SCORES = HeadSpec("regression", 1, max_length=LENGTH, score_range=(0.0, 5.0))
SETS = HeadSpec("multilabel", 2, max_length=LENGTH, label_names=("acting", "plot"), thresholds=(0.375, 0.585))
CALIBRATED = replace(CLASSES, temperature=1.7)
MOVIES = build({}, "test")
ASPECTS = build(
    {
        "data": {"task": "multi-label", "source": "files", "path": "films", "labels": list(SETS.label_names)},
        "gate": {"f1_micro": 0},
    },
    "test",
)
STSB = build({"data": {"task": "STS-B", "source": "glue", "path": "glue"}, "gate": {"pearson": 0}}, "test")
SENTENCES = [text for (text,) in reviews(40)[0]]
PAIRS = list(zip(SENTENCES, SENTENCES[::-1], strict=True))


def trained(folder: Path, kind: str, spec: HeadSpec) -> Classifier:
    """Save a model of the family, with outputs that differ clearly from row to row; return it before calibration."""
    encoder = family(folder.with_name("encoder"), kind)
    model = load_pretrained(encoder, spec).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    if spec.thresholds:
        setattr(model.model.config, THRESHOLDS, list(spec.thresholds))
    model.save(folder)
    copy_tokenizer(encoder, folder, model, spec.max_length)
    if spec.temperature != 1:
        shutil.copytree(folder, folder.parent / "raw/model")
        divide_logits(folder, model, spec.temperature)
    return model


def rows_of(folder: Path, model: Path, labels: list[Any], pairs: bool) -> TokenTable:
    """Write a split as preprocess does, with the tokenizer of the model."""
    words = tokens.open_tokenizer(model / "tokenizer.json", LENGTH)
    texts: list[tuple[str, ...]] = list(PAIRS) if pairs else [(text,) for text in SENTENCES]
    return TokenTable.open(write_split(folder, texts, labels, words=words))


def ready(home: Path, kind: str = "bert", spec: HeadSpec = CLASSES) -> tuple[Run, Experiment]:
    """Return a run that has passed its gate with a model that is right on every row."""
    model = trained(home / "made/model", kind, spec)
    pairs = spec.kind == "regression"
    unknown = [(0, 0) if spec is SETS else 0] * len(SENTENCES)
    logits = predict_logits(model, rows_of(home / "made/dev", home / "made/model", unknown, pairs))
    predicted, _ = predict(spec.kind, logits, spec.thresholds)
    labels = [tuple(row) for row in predicted.tolist()] if spec is SETS else predicted.tolist()
    run, experiment = Run(home / "runs/one"), {"regression": STSB, "multilabel": ASPECTS}.get(spec.kind, MOVIES)
    with made(run, experiment, "preprocess") as folder:
        for split in ("train", "dev"):
            rows_of(folder / split, home / "made/model", labels, pairs)
    with made(run, experiment, "train") as folder:
        shutil.copytree(home / "made/model", folder / "model")
    with made(run, experiment, "gate"):
        pass
    return run, experiment


@contextmanager
def made(run: Run, experiment: Experiment, stage: str) -> Iterator[Path]:
    """The folder of an artifact of a stage that has not run. It is committed in the end, and the run points at it."""
    with run.store.writing(stage, f"{stage:-<16}") as folder:
        yield folder
        part = STAGES[stage].part(experiment)
        manifest = Manifest(stage, f"{stage:-<16}", STAGES[stage].version, part, {}, "", "")
        run.add(run.store.commit(folder, manifest), experiment)


def packaged(home: Path, kind: str = "bert", spec: HeadSpec = CLASSES) -> Artifact:
    """Run the stage on such a run."""
    run, experiment = ready(home, kind, spec)
    return run_stage("package", experiment, run)


def unchanged_package(folder: Path, model: Path, spec: HeadSpec = CLASSES) -> None:
    """Write a package that offers the model as it is, and nothing else."""
    shutil.copytree(model, folder / "model")
    form = {"name": "torch-fp32", "engine": "torch", "precision": "fp32", "file": "model", "offered": True}
    form |= {"speeds": speeds_of(1), "reasons": []}
    said = {
        "served": "torch-fp32",
        "predicts": "torch-fp32",
        "columns": ["sentence"],
        "labels": list(spec.label_names),
        "max_length": 128,
    }
    said |= {"kind": "classification", "thresholds": [], "limits": {}}
    write_json(folder / "package.json", {**said, "forms": [form]})


def speeds_of(times: float) -> dict[str, dict[str, float]]:
    """Return what a package says of a form that is this many times as fast as PyTorch in every use."""
    return {use: {"rows_per_second": 100 * times, "times_torch": times} for uses in USES.values() for use in uses}


def largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two arrays of equal shape."""
    assert one.shape == other.shape
    return float(np.abs(one - other).max())


def doubt(package: Path, least: float) -> None:
    """Let dev say of every form of a classifier that it is right from a confidence on, and wrong below."""
    confidence = np.concatenate([np.linspace(0.5, least, 2000, endpoint=False), np.linspace(least, 1, 2000)])
    said = count("classification", (confidence >= least).astype(int), np.stack([1 - confidence, confidence], axis=1))
    forms = json.loads((package / "package.json").read_text(encoding="utf-8"))["forms"]
    write_json(package / EVIDENCE, {form["name"]: said for form in forms})
