"""The copies in bf16 that fused layers multiply with, on one rank."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tasks.encoder.fused_layer import fused_linears
from tasks.training.factory import build_trainer
from tasks.training.loop import Trainer
from tests.tasks.launching.jobs import make_job

PROJECTIONS = ("query", "key", "value")


def linears(trainer: Trainer) -> dict[str, nn.Linear]:
    found = fused_linears(trainer.model)
    assert found
    return found


def assert_new(trainer: Trainer) -> None:
    """They equal the weights to the bit."""
    for name, linear in linears(trainer).items():
        copy = trainer.exchange.copies[name]
        assert torch.equal(copy, linear.weight.bfloat16())
        assert copy.data_ptr() == vars(linear)["weight_in_bf16"].data_ptr()


@pytest.mark.parametrize("accumulation", [1, 2])
def test_they_are_as_new_as_the_weights_and_lie_together(tmp_path: Path, accumulation: int) -> None:
    job = make_job(tmp_path, precision="bf16", accumulation=accumulation, average_decay=0.9)
    trainer = build_trainer(job, stopping=lambda: False)
    before = {name: copy.clone() for name, copy in trainer.exchange.copies.items()}
    assert_new(trainer)
    for batch in trainer.sampler:
        stop = trainer.advance(batch, lambda: None)
        assert not stop
        assert_new(trainer)
        if batch.step == 3:
            trainer.evaluate(batch)
            trainer.checkpoints.write(batch.step, trainer.state.snapshot())
            kept = {name: copy.clone() for name, copy in trainer.exchange.copies.items()}
    moved = [name for name, copy in trainer.exchange.copies.items() if not torch.equal(copy, before[name])]
    assert len(moved) == len(before)
    for name, first in trainer.exchange.copies.items():
        if name.endswith("query.weight"):
            others = [trainer.exchange.copies[name.replace("query", other)] for other in PROJECTIONS]
            assert [one.data_ptr() - first.data_ptr() for one in others] == [n * first.nbytes for n in range(3)]
    again = build_trainer(job, stopping=lambda: False)
    again.resume()
    assert_new(again)
    assert all(torch.equal(copy, kept[name]) for name, copy in again.exchange.copies.items())


@pytest.mark.parametrize(("accumulation", "dtype"), [(1, torch.bfloat16), (2, torch.float32)])
def test_gradients_that_are_not_added_up_stay_in_bf16(tmp_path: Path, accumulation: int, dtype: torch.dtype) -> None:
    job = make_job(tmp_path, precision="bf16", accumulation=accumulation)
    trainer = build_trainer(job, stopping=lambda: False)
    trainer.compute_gradients(next(iter(trainer.sampler)))
    for linear in linears(trainer).values():
        assert linear.weight.grad is not None and linear.weight.grad.dtype == dtype
