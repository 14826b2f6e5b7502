"""Small trainings for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from include.named_experiments import build
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tests.tasks.encoder.samples import reviews, tiny_encoder, write_split

TRAINING = {
    "epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32", "ranks": 1, "evaluations": 2,
}  # fmt: skip


def make_job(root: Path, communication: dict[str, Any] | None = None, **training: Any) -> Job:
    """A job on tiny data below root, whose encoder has no dropout, and whose head is a linear layer."""
    if not (root / "encoder").exists():
        tiny_encoder(root / "encoder")
        write_split(root / "data" / "train", *reviews(60, seed=1))
        write_split(root / "data" / "dev", *reviews(30, seed=2))
    values = {
        "model": {"dropout": 0.0, "pooling": "mean"},
        "preprocessing": {"max_length": 32},
        "training": {**TRAINING, **training},
        "communication": communication or {"compression": "none"},
    }
    output = root / f"output-{len(list(root.glob('output-*')))}"
    output.mkdir()
    return Job(build(values, "the test's experiment"), root / "encoder", root / "data", output)


def lines(output: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def losses(output: Path) -> list[float]:
    """The training losses in metrics.jsonl."""
    return [line["loss"] for line in lines(output) if "loss" in line]


def check_stop(whole: Job, stopped: Job) -> None:
    """Train `whole` at once, and `stopped` with a stop after three steps. Check that both end equal, to the bit."""
    build_trainer(whole, lambda: False).run()
    asked = iter([False] * 3 + [True])
    build_trainer(stopped, lambda: next(asked)).run()
    assert not (stopped.output / "model").exists()
    build_trainer(stopped, lambda: False).run()
    assert losses(stopped.output) == losses(whole.output)
    first, second = ((job.output / "model" / "model.safetensors").read_bytes() for job in (whole, stopped))
    assert first == second
