"""All stages on CSV files of one's own."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from include.named_experiments import build
from include.runs import Run
from include.stages import PIPELINE
from tasks.runner import run_stage
from tests.tasks.encoder.samples import reviews

NAMES = ("bad", "good")
_TRAINING = {"batch_size": 8, "learning_rate": 5e-3, "ranks": 1, "precision": "fp32"}


def named_rows(count: int, seed: int) -> list[dict[str, str]]:
    """Return reviews as rows of a CSV file, whose labels are names."""
    sentences, labels = reviews(count, seed)
    return [{"sentence": text, "label": NAMES[label]} for (text,), label in zip(sentences, labels, strict=True)]


def run_all_stages(
    folder: Path,
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
    values: dict[str, Any],
    stages: Sequence[str] = PIPELINE,
) -> Run:
    """Write each split to a CSV file in the folder, and run an experiment with these files and these values."""
    for name, rows in splits.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    files = {"source": "files", "path": str(folder), **{name: f"{name}.csv" for name in splits}}
    sections = {"data": {**files, **values["data"]}, "training": {**_TRAINING, **values["training"]}}
    sections["prediction"] = {"form": "torch-fp32"}  # the fastest form may compute less exactly
    run, experiment = Run(folder / "home" / "runs" / "one"), build({**values, **sections}, "the test's experiment")
    for stage in stages:
        run_stage(stage, experiment, run)
    return run
