from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from tasks.encoder import fused_layer
from tasks.encoder.dropout import Noise
from tasks.encoder.fused_layer import (
    Attention,
    FeedForward,
    bert_attention,
    fuse_layers,
    fused_linears,
    leave_gradients_narrow,
    mpnet_attention,
    multiply_with,
)
from tasks.training.layers import recompute_activations
from tests.tasks.encoder.families import FAMILIES, family

SIZES: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
KINDS = {"bert": bert_attention, "mpnet": mpnet_attention}
both = pytest.mark.parametrize("kind", KINDS)


def encoder(kind: str, dropout: float = 0.0, **values: Any) -> Any:
    torch.manual_seed(0)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = AutoConfig.for_model(kind, **{**SIZES, **rates, **values})
    model: Any = AutoModel.from_config(config, add_pooling_layer=False)  # type: ignore[no-untyped-call]
    if kind == "mpnet":  # As drawn, its biases are too small to matter.
        torch.nn.init.normal_(model.encoder.relative_attention_bias.weight)
    return model.train()


def fused(
    kind: str, layer: Any, hidden: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor | None
) -> torch.Tensor:
    attended = Attention.of(KINDS[kind](layer), hidden, mask, bias, hidden.dtype)
    return FeedForward.of(layer, attended, hidden.dtype)


def padding(allowed: torch.Tensor, kind: str) -> torch.Tensor:
    """The mask as a layer gets it: BERT's is boolean, and MPNet's is added to the scores."""
    return allowed if kind == "bert" else torch.where(allowed, 0.0, torch.finfo(torch.float32).min)


@both
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_in_fp32_it_is_transformers_layer_and_gradient(kind: str, padded: bool, rows: int) -> None:
    layer, hidden = encoder(kind).encoder.layer[0], torch.randn(3, 7, 32, requires_grad=True)
    mask, bias = None, torch.randn(rows, 4, 7, 7, requires_grad=True)
    if padded:
        allowed = torch.ones(3, 1, 1, 7, dtype=torch.bool)
        allowed[1, ..., 4:] = False
        mask = padding(allowed, kind)
    weight = torch.randn(3, 7, 32)
    if kind == "bert":
        expected, result, inputs = layer(hidden, mask), fused(kind, layer, hidden, mask, None), [hidden]
    else:
        (expected,) = layer(hidden, mask, bias)
        result = fused(kind, layer, hidden, None, bias if mask is None else bias + mask)
        inputs = [hidden, bias]
    torch.testing.assert_close(result, expected)
    inputs += layer.parameters()
    for own, reference in zip(
        torch.autograd.grad((result * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(own, reference, rtol=1e-4, atol=1e-5)


@both
@pytest.mark.parametrize("rows", [1, 2])
def test_gradients_with_dropout_are_those_of_the_function(
    monkeypatch: pytest.MonkeyPatch, kind: str, rows: int
) -> None:
    """Compare them with finite differences; every call draws the same noise."""
    layer = encoder(kind, dropout=0.3).encoder.layer[0].double()
    monkeypatch.setattr(Noise, "__init__", lambda self: setattr(self, "_random", torch.Generator().manual_seed(3)))
    monkeypatch.setattr(
        Noise, "draw", lambda self, shape, rate, dtype: (
            torch.rand(shape, generator=self._random, dtype=dtype) >= rate
        ).to(dtype) / (1 - rate),
    )  # fmt: skip
    hidden = torch.randn(2, 3, 32, dtype=torch.double, requires_grad=True)
    bias = None if kind == "bert" else torch.randn(rows, 4, 3, 3, dtype=torch.double, requires_grad=True)

    def function(values: torch.Tensor) -> torch.Tensor:
        return fused(kind, layer, values, None, bias)

    assert torch.autograd.gradcheck(function, hidden, atol=1e-6)
    if bias is not None:
        assert torch.autograd.gradcheck(lambda values: fused(kind, layer, hidden, None, values), bias, atol=1e-6)


def batch(tokens: int) -> dict[str, torch.Tensor]:
    """Token ids, and a mask under which the second row is shorter."""
    ids = torch.randint(2, 50, (8, tokens), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def output_and_gradients(model: Any, bf16: bool, tokens: int) -> dict[str, torch.Tensor]:
    """Return them for a loss to which every output for a token contributes differently."""
    inputs = batch(tokens)
    kept = inputs["attention_mask"].bool()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        output = model(**inputs).last_hidden_state[kept]
    weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(2))
    (output * weight).sum().backward()
    return {"output": output.detach(), **{name: p.grad for name, p in model.named_parameters() if p.grad is not None}}


@both
@pytest.mark.parametrize("tokens", [12, 40])  # softmax has another way for few
def test_in_bf16_output_and_gradients_are_as_near_to_fp32_as_autocasts(kind: str, tokens: int) -> None:
    plain, usual, quick = encoder(kind), encoder(kind), encoder(kind)
    assert fuse_layers(quick)
    exact = output_and_gradients(plain, bf16=False, tokens=tokens)
    expected, found = (output_and_gradients(model, bf16=True, tokens=tokens) for model in (usual, quick))
    assert found.keys() == expected.keys() == exact.keys()
    assert ("encoder.relative_attention_bias.weight" in found) == (kind == "mpnet")
    assert not torch.equal(found["output"], expected["output"])  # It is another implementation.
    for name, values in exact.items():
        assert found[name].dtype == torch.float32
        if values.norm() > 1e-3:  # A bias of keys has no gradient but noise, as softmax ignores it.
            assert (found[name] - values).norm() <= 1.5 * (expected[name] - values).norm(), name


@both
def test_copies_are_multiplied_with_and_gradients_stay_as_they_were_computed(kind: str) -> None:
    usual, quick = encoder(kind), encoder(kind)
    fuse_layers(usual), fuse_layers(quick)
    linears = fused_linears(quick)
    assert len(linears) == 6 * len(quick.encoder.layer)
    for name, linear in linears.items():
        assert quick.get_parameter(name) is linear.weight
        multiply_with(linear.weight.detach().bfloat16(), linear)
        leave_gradients_narrow(linear)
        torch.nn.init.zeros_(linear.weight)
    expected, found = (output_and_gradients(model, bf16=True, tokens=12) for model in (usual, quick))
    assert found.keys() == expected.keys()
    narrow = {name for name, values in found.items() if values.dtype == torch.bfloat16}
    assert narrow == {*linears, *(name.replace("weight", "bias") for name in linears)}
    assert all(torch.equal(values.float(), expected[name]) for name, values in found.items())


@pytest.mark.parametrize("tokens", [1, 5, 16, 31, 32, 40])
def test_softmax_of_rows_of_any_length_and_its_gradient(tokens: int) -> None:
    torch.manual_seed(0)
    scores, gradient = torch.randn(3, 4, tokens).bfloat16(), torch.randn(3, 4, tokens).bfloat16()
    scores[1, :, tokens // 2 + 1 :] = -math.inf
    exact = scores.float().requires_grad_()
    expected = torch.softmax(exact, -1)
    (slope,) = torch.autograd.grad(expected, exact, gradient.float())
    probabilities = fused_layer._softmax(scores)
    found = fused_layer._softmax_backward(gradient, probabilities)
    assert probabilities.dtype == found.dtype == torch.bfloat16 and probabilities.is_contiguous()
    torch.testing.assert_close(probabilities.float(), expected, rtol=2**-8, atol=1e-6)
    torch.testing.assert_close(found.float(), slope, rtol=0, atol=0.02)


@both
def test_only_training_in_bf16_goes_this_way(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    calls = []

    def note(modules: Any, hidden: torch.Tensor, *rest: Any) -> torch.Tensor:
        calls.append(modules)
        return hidden

    monkeypatch.setattr(Attention, "of", note)
    ids, model = torch.ones(1, 4, dtype=torch.long), encoder(kind)
    fuse_layers(model)
    model(input_ids=ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.eval()(input_ids=ids)
        assert calls == []
        model.train()(input_ids=ids)
    assert len(calls) == 2


@pytest.mark.parametrize("kind", FAMILIES)
def test_parameters_and_their_names_stay(tmp_path: Path, kind: str) -> None:
    model = AutoModel.from_pretrained(family(tmp_path / "encoder", kind))
    names = list(model.state_dict())
    assert fuse_layers(model) == (kind in KINDS)
    assert list(model.state_dict()) == names


@both
def test_layers_with_another_activation_are_left_as_they_were(kind: str) -> None:
    model = encoder(kind, hidden_act="relu")
    assert not fuse_layers(model)
    assert all("forward" not in vars(layer) for layer in model.encoder.layer)
    recompute_activations(model)  # which replaces the passes of layers, too
    assert not fused_linears(model)
