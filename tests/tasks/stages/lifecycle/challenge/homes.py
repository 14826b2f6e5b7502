"""Homes with what challenge reads, committed as the runner would: tiny real models, dev rows, what evaluate says."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from include.artifacts import Artifact, Manifest, write_json
from include.experiment import Experiment
from include.named_experiments import build
from include.runs import Run
from include.stages import STAGES
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import copy_tokenizer, load_pretrained, load_trained
from tasks.encoder.models import predict_logits
from tasks.encoder.spec import HeadSpec
from tasks.stages.pipeline.evaluate.rows import predictions_table
from tasks.stages.pipeline.evaluate.summary import score
from tests.tasks.encoder.samples import reviews, tiny_encoder, write_split
from tests.tasks.stages.pipeline.package.packages import unchanged_package

CLASSES = HeadSpec("classification", 2, max_length=32, label_names=("negative", "positive"))
SCORES = HeadSpec("regression", 1, max_length=64, score_range=(0.0, 5.0))
STSB = {"data": {"task": "STS-B", "source": "glue", "path": "glue"}}
ROWS = 200


@dataclass(frozen=True)
class Home:
    """A run that has come as far as the challenge.

    Attributes:
        run: the run.
        model: the folder of a model that is right on nine dev rows of ten, or close to their scores.
        settings: what the run does, but for `retraining`.
    """

    run: Run
    model: Path
    settings: Mapping[str, Any]

    @property
    def dev(self) -> Path:
        """The folder of the dev rows."""
        return self.run.artifact("preprocess").path / "dev"

    @property
    def validated(self) -> Path:
        """The table with the texts of the dev rows as they were before cleaning."""
        return self.run.artifact("validate").path / "dev.parquet"

    def experiment(self, **retraining: float) -> Experiment:
        """What the run does, held against these margins and budgets."""
        return build({**self.settings, "retraining": retraining}, "test")

    def train(self, model: Path) -> None:
        """Let the run's training have made this model, and evaluate score it."""
        scored = score(self.experiment().task, load_trained(model), self.dev).cross_fitted()
        table = predictions_table(scored)
        self.add("train", lambda folder: _copy(model, folder / "model"))
        self.add("evaluate", lambda folder: pq.write_table(table, folder / "predictions.parquet"))
        self.add("gate", lambda folder: None)
        self.add("package", lambda folder: unchanged_package(folder, model))

    def crown(self, model: Path | None) -> Path:
        """Let a copy of this model, which another run has trained, be the champion, or nobody; the copy's folder."""
        named = dict.fromkeys(("version", "train", "evaluate", "folder"), "")
        if model is not None:
            made = self._commit("train", lambda folder: _copy(model, folder / "model"))
            named |= {"version": "3", "train": made.manifest.key, "folder": str(made.path / "model")}
        self.add("champion", lambda folder: write_json(folder / "champion.json", {**named, "model": "movies"}))
        return Path(named["folder"])

    def add(self, stage: str, fill: Callable[[Path], object]) -> None:
        """Let the run have made an artifact."""
        self.run.add(self._commit(stage, fill), self.experiment())

    def _commit(self, stage: str, fill: Callable[[Path], object]) -> Artifact:
        store, part = self.run.store, STAGES[stage].part(self.experiment())
        key = f"{len(list((store.root / stage).glob('*'))):016}"
        with store.writing(stage, key) as folder:
            fill(folder)
            return store.commit(folder, Manifest(stage, key, 1, part, {}, "", ""))


def home(root: Path, settings: Mapping[str, Any]) -> Home:
    """A home whose run has preprocessed: ROWS sentences, or pairs of them for a task with scores."""
    scores = "data" in settings
    sentences: list[tuple[str, ...]] = list(reviews(ROWS)[0])
    if scores:
        sentences = [(*first, *second) for first, second in zip(sentences, reviews(ROWS, seed=1)[0], strict=True)]
    model, labels = _learned(root / "made", sentences, SCORES if scores else CLASSES)
    made = Home(Run(root / "runs" / "one"), model, settings)
    made.add("validate", lambda folder: pq.write_table(_raw(sentences), folder / "dev.parquet"))
    made.add("preprocess", lambda folder: write_split(folder / "dev", sentences, labels))
    return made


def _raw(sentences: list[tuple[str, ...]]) -> pa.Table:
    columns = {f"sentence{number}": list(column) for number, column in enumerate(zip(*sentences, strict=True), 1)}
    return pa.table({"row": pa.array(range(len(sentences)), pa.int64()), **columns}).take(
        pa.array(reversed(range(len(sentences))))
    )


def changed(model: Path, target: Path, change: Callable[[torch.nn.Linear], object]) -> Path:
    """A copy of a model whose head has been changed."""
    copy = load_trained(_copy(model, target))
    with torch.no_grad():
        change(copy.output_layer)
    copy.save(target)
    return target


def negate(head: torch.nn.Linear) -> None:
    """Say the opposite."""
    head.weight.neg_()
    head.bias.neg_()


def _learned(folder: Path, sentences: list[tuple[str, ...]], spec: HeadSpec) -> tuple[Path, list[float]]:
    """A model, and labels that it has learned, as it were: its own predictions, but for a tenth of the rows."""
    encoder, random = tiny_encoder(folder / "encoder"), np.random.default_rng(3)
    model = load_pretrained(encoder, spec).eval()
    torch.nn.init.normal_(model.output_layer.weight, std=0.5)
    table = TokenTable.open(write_split(folder / "unlabeled", sentences, [0] * len(sentences)))
    logits = predict_logits(model, table)
    if spec.kind == "regression":
        labels = logits[:, 0] + random.normal(scale=logits.std() / 3, size=len(table))
    else:
        middle = float(np.median(logits[:, 1] - logits[:, 0]))
        model.output_layer.bias.data += torch.tensor([middle, 0.0])  # so that it says each class for half of the rows
        predicted = predict_logits(model, table).argmax(axis=1)
        labels = np.where(random.random(len(table)) < 0.1, 1 - predicted, predicted)
    model.save(folder / "model")
    copy_tokenizer(encoder, folder / "model", model, spec.max_length)
    return folder / "model", labels.tolist()


def _copy(model: Path, target: Path) -> Path:
    return Path(shutil.copytree(model, target))
