"""The file of a trained model with divided logits, which everything that reads it then computes."""

from __future__ import annotations

import dataclasses
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from include.fields.training import Training
from include.stages import Transient
from tasks.encoder.adapters import ADAPTER, add_adapters
from tasks.encoder.loading import load_pretrained, load_trained
from tasks.encoder.models import WEIGHTS, divide_logits
from tasks.training.layers import layers_of
from tests.tasks.encoder.families import FAMILIES
from tests.tasks.encoder.test_families import CLASSES, SENTENCES, logits_of, plain_logits, saved

DIVISOR = 2.7


@pytest.mark.parametrize("kind", [*FAMILIES, "bert, mean"])
def test_only_the_output_layer_changes(tmp_path: Path, kind: str) -> None:
    name, _, pooled = kind.partition(", ")
    folder, spec = tmp_path / "model", dataclasses.replace(CLASSES, pooling="mean" if pooled else "native")
    raw = logits_of(saved(folder, name, spec), folder, [SENTENCES])
    before, mode = load_file(folder / WEIGHTS), (folder / WEIGHTS).stat().st_mode
    others = {file: file.read_bytes() for file in folder.iterdir() if file.is_file() and file.name != WEIGHTS}
    divide_logits(folder, load_trained(folder), DIVISOR)
    torch.testing.assert_close(logits_of(load_trained(folder), folder, [SENTENCES]), raw / DIVISOR, rtol=0, atol=1e-5)
    after = load_file(folder / WEIGHTS)
    assert list(after) == list(before)
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert len(changed) == 2 and {name.rpartition(".")[2] for name in changed} == {"weight", "bias"}
    assert (folder / WEIGHTS).stat().st_mode == mode
    assert {file: file.read_bytes() for file in folder.iterdir() if file.name != WEIGHTS} == others
    if not pooled:
        plain = AutoModelForSequenceClassification.from_pretrained(folder)
        torch.testing.assert_close(plain_logits(plain, folder, [SENTENCES]), raw / DIVISOR, rtol=0, atol=1e-5)


def test_adapters_are_left_alone(tmp_path: Path) -> None:
    folder, spec = tmp_path / "model", CLASSES
    saved(folder, "bert", spec)
    model = load_pretrained(folder, spec)
    add_adapters(model.encoder, layers_of(model.encoder), Training(lora_rank=2))
    model.save(folder)
    adapters = {file: file.read_bytes() for file in (folder / ADAPTER).iterdir()}
    assert not any("classifier" in name for name in load_file(folder / ADAPTER / "adapter_model.safetensors"))
    divide_logits(folder, load_trained(folder), DIVISOR)
    assert {file: file.read_bytes() for file in (folder / ADAPTER).iterdir()} == adapters


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    saved(folder, "bert", CLASSES)
    model, before, names = load_trained(folder), (folder / WEIGHTS).read_bytes(), sorted(folder.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))  # bytes that one file may have
    try:
        with pytest.raises(Transient, match=r"cannot write .*model\.safetensors"):
            divide_logits(folder, model, DIVISOR)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (folder / WEIGHTS).read_bytes() == before and sorted(folder.iterdir()) == names
