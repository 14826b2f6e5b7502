from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModel, GPT2Config, GPT2Model

from include.fields.training import Training
from include.stages import BadInput
from tasks.encoder.adapters import ADAPTER, add_adapters
from tasks.encoder.fused_layer import fuse_layers
from tasks.encoder.loading import copy_tokenizer, load_pretrained, load_trained
from tasks.encoder.models import Classifier
from tasks.encoder.spec import HeadSpec
from tasks.training.layers import layers_of
from tests.tasks.encoder.families import FAMILIES, family

SPEC = HeadSpec("regression", 1, "native", max_length=32, score_range=(1.0, 5.0))
IDS = torch.arange(5, 20).view(3, 5)
MASK = torch.ones_like(IDS)


def adapted(folder: Path, targets: str = "attention") -> Classifier:
    """Return a model whose adapters have random weights, after a look at what they were before."""
    model = load_pretrained(folder, SPEC).eval()
    before = model(IDS, MASK)
    training = Training.model_validate({"lora_rank": 4, "lora_alpha": 8, "lora_targets": targets})
    add_adapters(model.encoder, layers_of(model.encoder), training)
    assert torch.equal(model.eval()(IDS, MASK), before)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.5)
    assert not torch.allclose(model(IDS, MASK), before, atol=1e-3)
    return model


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_saved_model_and_the_saved_adapters_each_give_what_was_trained(tmp_path: Path, kind: str) -> None:
    source, saved = family(tmp_path / "encoder", kind), tmp_path / "model"
    model = adapted(source)
    model.save(saved)
    copy_tokenizer(source, saved, model, 32)
    torch.testing.assert_close(load_trained(saved)(IDS, MASK), model(IDS, MASK), atol=1e-4, rtol=0)
    plain = PeftModel.from_pretrained(AutoModel.from_pretrained(source), str(saved / ADAPTER)).eval()
    found = plain(input_ids=IDS, attention_mask=MASK).last_hidden_state
    expected = model.encoder(input_ids=IDS, attention_mask=MASK).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert len({file.stat().st_mode for file in saved.rglob("*") if file.is_file()}) == 1  # who may read one, may all


def test_only_adapters_and_the_head_are_trained(tmp_path: Path) -> None:
    source = family(tmp_path / "encoder", "bert")
    projections = [f"model.bert.encoder.layer.{layer}.attention.{part}" for layer in (0, 1) for part in (
        "self.query", "self.key", "self.value", "output.dense",
    )]  # fmt: skip
    feed_forward = [f"model.bert.encoder.layer.{n}.{part}.dense" for n in (0, 1) for part in ("intermediate", "output")]
    head = [f"model.{part}.{kind}" for part in ("bert.pooler.dense", "classifier") for kind in ("weight", "bias")]
    for targets, layers in (("attention", projections), ("all", projections + feed_forward)):
        model = adapted(source, targets)
        trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        expected = {f"{name}.lora_{side}.default.weight" for name in layers for side in "AB"}
        assert trained == expected | set(head)


def test_a_model_without_adapters_has_no_folder_for_them(tmp_path: Path) -> None:
    model = load_pretrained(family(tmp_path / "encoder", "bert"), SPEC)
    model.save(tmp_path / "model")
    assert not (tmp_path / "model" / ADAPTER).exists()
    names = load_file(tmp_path / "model" / "model.safetensors").keys()
    model = adapted(tmp_path / "encoder")
    model.save(tmp_path / "adapted")
    assert load_file(tmp_path / "adapted" / "model.safetensors").keys() == names


def test_an_encoder_without_linear_layers_is_refused(tmp_path: Path) -> None:
    encoder = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50))  # it has Conv1D
    training = Training.model_validate({"lora_rank": 4})
    with pytest.raises(BadInput, match=r"\(gpt2\) has no linear layers that .*: write training.lora_rank: 0$"):
        add_adapters(encoder, layers_of(encoder), training)


def test_layers_with_adapters_are_not_fused(tmp_path: Path) -> None:
    """Their fused passes would leave the adapters out."""
    model = adapted(family(tmp_path / "encoder", "bert"))
    assert not fuse_layers(model.encoder)
