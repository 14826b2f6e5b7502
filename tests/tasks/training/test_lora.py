"""A training of adapters: it learns, leaves the encoder's own weights alone, and goes on to the bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tests.tasks.launching.jobs import losses, make_job

LORA: dict[str, Any] = {"lora_rank": 8, "lora_alpha": 64, "learning_rate": 1e-2}


def lora(root: Path, name: str, **training: Any) -> Job:
    job = make_job(root, **{**LORA, **training})
    return dataclasses.replace(job, checkpoints=root / name)


def test_it_learns_without_moving_the_encoder(tmp_path: Path) -> None:
    job = lora(tmp_path, "whole", epochs=30, batch_size=60)  # every batch has all rows, so that the loss falls evenly
    job.folder.mkdir()
    build_trainer(job, lambda: False).run()
    assert losses(job.output)[-1] < 0.5 * losses(job.output)[0]
    before, after = load_file(job.encoder / "model.safetensors"), load_file(job.output / "model/model.safetensors")
    moved = {name for name, values in before.items() if not torch.equal(values, after.get(f"encoder.{name}", values))}
    assert moved and all(".attention." in name and name.endswith(".weight") for name in moved)
    assert (job.output / "model" / "adapter" / "adapter_model.safetensors").is_file()


def test_it_goes_on_to_the_bit(tmp_path: Path) -> None:
    whole, stopped = (lora(tmp_path, name) for name in ("whole", "stopped"))
    for job in (whole, stopped):
        job.folder.mkdir()
    build_trainer(whole, lambda: False).run()
    asked = iter([False] * 4 + [True])
    build_trainer(stopped, lambda: next(asked)).run()
    build_trainer(stopped, lambda: False).run()
    assert losses(stopped.output) == losses(whole.output)
    for file in ("model.safetensors", "adapter/adapter_model.safetensors"):
        assert (stopped.output / "model" / file).read_bytes() == (whole.output / "model" / file).read_bytes()
