"""Steps that the device decides about. A CPU takes them as a GPU does, without the gain."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.masking_utils import bidirectional_mask_function

from include.fields.training import Batching, Loss
from include.stages import BadInput
from tasks.encoder import padding_free as packing
from tasks.kernels import library
from tasks.launching.launch import launch
from tasks.stages.pipeline.pretrain.blocks import BlockWriter
from tasks.training import factory, loop, precision
from tasks.training.job import Job
from tasks.training.precision import (
    GROWTH_STEPS,
    LOOK,
    PATIENCE,
    DeviceGuard,
    DeviceLossScale,
    LossScale,
    NonFiniteGuard,
)
from tests.tasks.launching.jobs import losses, make_job
from tests.tasks.stages.pipeline.pretrain.samples import text, tiny_encoder

CPU = torch.device("cpu")
_aten = torch.ops.aten
#: What gives Python a number, or a shape that depends on numbers.
READS = {
    _aten._local_scalar_dense.default, _aten.equal.default, _aten.nonzero.default, _aten.masked_select.default,
    _aten._unique2.default, _aten.repeat_interleave.Tensor,
}  # fmt: skip


def train(root: Path, **training: Any) -> Job:
    job = make_job(root, patience=0, clip_norm=0.3, **training)
    launch(job)
    return job


def skipped(job: Job) -> int:
    """The steps that were not taken."""
    values = json.loads((job.output / "training.json").read_text(encoding="utf-8"))
    return int(values["skipped_steps"])


def test_the_device_clips_as_python_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "runs_ahead", lambda device: False)  # on a GPU, too
    in_python = train(tmp_path, sparse_embeddings=False)
    monkeypatch.setattr(factory, "runs_ahead", lambda device: True)
    on_device = train(tmp_path)
    np.testing.assert_allclose(losses(on_device.output), losses(in_python.output), rtol=1e-5)


def test_the_device_skips_the_steps_that_python_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first gradients overflow, because the loss scale begins far too high."""
    monkeypatch.setattr(precision, "FIRST_SCALE", 2.0**24)
    monkeypatch.setattr(factory, "runs_ahead", lambda device: False)
    in_python = train(tmp_path, precision="fp16", sparse_embeddings=False)
    monkeypatch.setattr(factory, "runs_ahead", lambda device: True)
    on_device = train(tmp_path, precision="fp16")
    np.testing.assert_allclose(losses(on_device.output), losses(in_python.output), rtol=1e-5)
    assert skipped(on_device) == skipped(in_python) > 0


def norms(count: int) -> list[float]:
    random = np.random.default_rng(0)
    return list(np.where(random.random(count) < 0.3, math.inf, 1.0))


def test_the_counts_and_the_loss_scale_are_those_of_python() -> None:
    guard, reference_guard = DeviceGuard(CPU), NonFiniteGuard()
    scale, reference = DeviceLossScale("fp16", guard), LossScale("fp16")
    for step, norm in enumerate([*norms(40), *[1.0] * GROWTH_STEPS, math.nan], 1):
        assert guard.accepts(torch.tensor(norm), step)
        scale.update(True)
        reference.update(reference_guard.accepts(norm, step))
        assert bool(guard.found_inf) == (not math.isfinite(norm))
    assert scale.state_dict() == reference.state_dict() and reference.value != 2.0**16
    assert guard.state_dict() == reference_guard.state_dict()
    again = DeviceLossScale("fp16", guard)
    again.load_state_dict(scale.state_dict())
    assert again.state_dict() == scale.state_dict()


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_the_other_formats_need_no_loss_scale(name: Any) -> None:
    scale = DeviceLossScale(name, DeviceGuard(CPU))
    scale.update(finite=True)
    assert (scale.value, scale.exchanged, scale.remaining) == (1, 1, 1)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_factor_is_kept_only_between_trainings_that_need_one(on_device: bool) -> None:
    """Where training.precision is auto, a training goes on in the format of another GPU."""

    def scale(name: Any) -> LossScale:
        return DeviceLossScale(name, DeviceGuard(CPU)) if on_device else LossScale(name)

    fp16 = scale("fp16")
    fp16.load_state_dict({"value": 2.0**9, "good": 7})
    assert fp16.state_dict() == {"value": 2.0**9, "good": 7}
    for name in ("bf16", "fp32"):
        other, back = scale(name), scale("fp16")
        other.load_state_dict(fp16.state_dict())
        assert (other.value, other.remaining, other.exchanged) == (1, 1, 1)
        back.load_state_dict(other.state_dict())
        assert back.state_dict() == scale("fp16").state_dict()


def test_python_looks_now_and_then_whether_the_loss_is_lost() -> None:
    guard = DeviceGuard(CPU)
    guard.load_state_dict({"skipped": 7, "in_a_row": 2})
    for step in range(LOOK - PATIENCE + 3, LOOK):
        assert guard.accepts(torch.tensor(math.nan), step)
    with pytest.raises(BadInput, match=rf"not finite since step {LOOK - PATIENCE + 1}: lower training.learning_rate"):
        guard.accepts(torch.tensor(math.nan), LOOK)


def test_a_loss_that_was_lost_is_found_later() -> None:
    guard = DeviceGuard(CPU)
    for step in range(1, 30):
        assert guard.accepts(torch.tensor(math.nan if 4 <= step < 4 + PATIENCE + 2 else 1.0), step)
    with pytest.raises(BadInput, match="not finite since step 4: "):
        guard.look()


def test_a_lost_loss_ends_a_training_of_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "runs_ahead", lambda device: True)
    monkeypatch.setattr(loop, "learning_rate", lambda *_: 1e30)
    with pytest.raises(BadInput, match="not finite since step 2: "):
        train(tmp_path)


class NothingIsRead(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes an operation an error for which Python would wait if its tensors were on a GPU."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_truth = function in (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default) and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        assert function not in READS and not by_truth, f"{function} reads a tensor"
        return function(*args, **(kwargs or {}))


@contextmanager
def nothing_is_read(device: torch.device) -> Iterator[None]:
    """A context in which Python may not wait for the device."""
    if device.type == "cpu":
        with NothingIsRead(), pytest.MonkeyPatch.context() as patch:  # type: ignore[no-untyped-call]
            for name in ("tolist", "cpu"):  # which no operation shows
                patch.setattr(torch.Tensor, name, lambda *_: pytest.fail("a tensor is read"))
            yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def hidden_words(root: Path) -> Job:
    """A pre-training."""
    writer = BlockWriter(tiny_encoder(root / "encoder"), max_length=32)
    for split in ("train", "dev"):
        writer.write(text(61, seed=1), root / "data" / split)
    return dataclasses.replace(make_job(root), objective="masked words")


@pytest.mark.parametrize(
    ("words", "padding_free", "recomputing"),
    [(False, False, False), (False, True, False), (True, False, False), (True, True, False), (False, True, True)],
)
def test_a_step_reads_nothing_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: bool, padding_free: bool, recomputing: bool
) -> None:
    monkeypatch.setattr(factory, "runs_ahead", lambda device: True)
    monkeypatch.setattr(packing, "_is_far", lambda mask: True)
    monkeypatch.setattr(library, "library", lambda: None)  # kernels are for CPUs, which read everything
    job = hidden_words(tmp_path) if words else make_job(
        tmp_path, precision="fp16", clip_norm=0.3, activation_checkpointing=recomputing
    )  # fmt: skip
    sections: dict[str, Any] = {"batching": Batching(padding_free=padding_free)}
    if not words:
        sections["loss"] = Loss(class_weights="balanced")
    experiment = job.experiment.model_copy(update=sections)
    trainer = factory.build_trainer(dataclasses.replace(job, experiment=experiment), lambda: False)
    monkeypatch.setattr(trainer.meter, "count", lambda *_: None)  # it reads the batch that is not on the device
    first, *others = islice(trainer.sampler, 3)
    trainer.step(first)  # the optimizer makes its moments
    with nothing_is_read(trainer.device):
        for batch in others:
            trainer.step(batch)


def test_a_mask_is_made_without_a_look_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says the same as the one that transformers leaves out."""
    tokens = torch.ones(2, 3, dtype=torch.bool)
    options: dict[str, Any] = {"batch_size": 2, "q_length": 3, "kv_length": 3, "allow_is_causal_skip": False}
    options["mask_function"] = bidirectional_mask_function
    assert packing.padding_mask(tokens, **options, allow_is_bidirectional_skip=True) is None
    monkeypatch.setattr(packing, "_is_far", lambda mask: True)
    made = packing.padding_mask(tokens, **options, allow_is_bidirectional_skip=True)
    assert made is not None and made.shape == (2, 1, 3, 3) and made.all()
