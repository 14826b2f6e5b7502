"""The comparison of a model with its teacher: how well each labels the dev rows, how fast, and how large it is."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from include.stages import BadInput
from tasks.encoder.loading import load_trained
from tasks.encoder.models import Classifier
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TorchBackend
from tasks.scoring import paired
from tasks.scoring.scored import ScoredSplit

#: How many dev rows each model labels in a turn, and how many turns are measured.
ROWS, TURNS = 64, 5


def compare_with_teacher(dev: ScoredSplit, folder: Path, model: Classifier, taught: Path, root: Path) -> dict[str, Any]:
    """Return what metrics.json says of the teacher, whose logits are in the artifact `taught`, and its files in a root.

    The models are timed in PyTorch on one thread, which measures their cost and not that of a package's form.
    """
    about = json.loads((taught / "teacher.json").read_text(encoding="utf-8"))
    found = paired.compare(dev.task, dev.labels, dev.predicted, _teacher_on(dev, taught).predicted)
    place = root / about["folder"]
    if not (place / "config.json").is_file():
        raise BadInput(f"the teacher's folder {place} is gone: restore it, or choose another model.teacher")
    teacher = load_trained(place)
    runners = {
        "model": Runner(folder, TorchBackend(model, threads=1), head=model.spec),
        "teacher": Runner(place, TorchBackend(teacher, threads=1), head=teacher.spec),
    }
    return {
        "name": about["teacher"],
        "metric": found.metric,
        "rows": found.rows,
        "model": found.model,
        "teacher": found.champion,
        "difference": found.difference,
        "interval": found.interval,
        "p": found.p,
        "rows_per_second": in_turns(runners, dev.sentences),
        "megabytes": {name: _megabytes(of) for name, of in (("model", folder), ("teacher", place))},
    }


def _teacher_on(dev: ScoredSplit, taught: Path) -> ScoredSplit:
    table = pq.read_table(taught / "dev.parquet")
    if not np.array_equal(table["row"].to_numpy(), dev.rows):
        raise BadInput(f"{taught / 'dev.parquet'} is of other rows than the dev split: run the stage teach again")
    logits = np.array(table["logits"].to_pylist(), np.float32)
    return replace(dev, logits=logits, thresholds=None, temperatures=1.0).cross_fitted()


def in_turns(runners: Mapping[str, Runner], sentences: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Return the rows per second of "model" and "teacher", and as "times" the median ratio of the same turn.

    They take turns on the same rows, so that other work on the machine slows both alike.
    """
    order = sorted(range(len(sentences)), key=lambda row: sum(map(len, sentences[row])))
    chosen = [sentences[order[at]] for at in np.linspace(0, len(order) - 1, min(len(order), ROWS)).astype(int)]
    rates: dict[str, list[float]] = {name: [] for name in runners}
    for turn in range(1 + TURNS):
        for name, runner in runners.items():
            started = time.perf_counter()
            for _ in runner.logits(chosen):
                pass
            if turn:  # the first one is a warm-up
                rates[name].append(len(chosen) / (time.perf_counter() - started))
    ratios = [ours / theirs for ours, theirs in zip(rates["model"], rates["teacher"], strict=True)]
    return {**{name: statistics.median(own) for name, own in rates.items()}, "times": statistics.median(ratios)}


def _megabytes(folder: Path) -> float:
    return (folder / "model.safetensors").stat().st_size / 1e6
