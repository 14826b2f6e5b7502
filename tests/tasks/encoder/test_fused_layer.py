from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from tasks.encoder.fused_layer import (
    Layer,
    bert_parts,
    fuse_layers,
    fused_linears,
    leave_gradients_narrow,
    mpnet_parts,
    multiply_with,
)
from tasks.kernels.build import build
from tasks.kernels.library import call
from tasks.training.layers import recompute_activations
from tests.tasks.encoder.families import FAMILIES, family

SIZES: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
KINDS = {"bert": bert_parts, "mpnet": mpnet_parts}
both = pytest.mark.parametrize("kind", KINDS)


def encoder(kind: str, dropout: float = 0.0, **values: Any) -> Any:
    torch.manual_seed(0)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = AutoConfig.for_model(kind, **{**SIZES, **rates, **values})
    model: Any = AutoModel.from_config(config, add_pooling_layer=False)  # type: ignore[no-untyped-call]
    if kind == "mpnet":  # As drawn, its biases are too small to matter.
        torch.nn.init.normal_(model.encoder.relative_attention_bias.weight)
    return model.train()


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    build()


def padding(allowed: torch.Tensor, kind: str) -> torch.Tensor:
    """The mask as a layer gets it: BERT's is boolean, and MPNet's is added to the scores."""
    return allowed if kind == "bert" else torch.where(allowed, 0.0, torch.finfo(torch.float32).min)


@both
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("tokens", [1, 7, 40])  # queries are computed 32 at a time, and keys 16
@pytest.mark.parametrize("heads", [4, 1])  # of 8 and of 32 features
def test_in_fp32_it_is_transformers_layer_and_gradient(
    kind: str, padded: bool, rows: int, tokens: int, heads: int
) -> None:
    layer = encoder(kind, num_attention_heads=heads).encoder.layer[0]
    hidden, bias = torch.randn(3, tokens, 32, requires_grad=True), torch.randn(rows, heads, tokens, tokens)
    bias.requires_grad_()
    present = torch.ones(3, tokens, dtype=torch.bool)
    present[1, tokens // 2 + 1 :] = not padded
    mask = padding(present[:, None, None], kind) if padded else None
    weight = torch.randn(3, tokens, 32)
    inputs = [hidden, *layer.parameters()] if kind == "bert" else [hidden, bias, *layer.parameters()]
    expected = layer(hidden, mask) if kind == "bert" else layer(hidden, mask, bias)[0]
    result = Layer.of(
        KINDS[kind](layer), hidden, present if padded else None, None if kind == "bert" else bias, torch.float32
    )
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    for own, reference in zip(
        torch.autograd.grad((result * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(own, reference, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 2])
def test_the_gradient_of_a_sum_which_has_strides_of_0_is_read_as_it_is(rows: int) -> None:
    layer, hidden = encoder("bert").encoder.layer[0], torch.randn(rows, 7, 32, requires_grad=True)
    weight = torch.arange(32.0)
    expected, result = layer(hidden), Layer.of(bert_parts(layer), hidden, None, None, torch.float32)
    (own,), (reference,) = (torch.autograd.grad((each.sum(1) * weight).sum(), hidden) for each in (result, expected))
    torch.testing.assert_close(own, reference, rtol=1e-4, atol=1e-4)


@both
def test_gradients_with_dropout_are_those_of_the_function(kind: str) -> None:
    """Compare them with differences along random directions; every call draws the same noise."""
    layer = encoder(kind, dropout=0.3).encoder.layer[0]
    hidden = torch.randn(4, 9, 32, requires_grad=True)
    bias = None if kind == "bert" else torch.randn(1, 4, 9, 9, requires_grad=True)
    inputs = [hidden, *([] if bias is None else [bias]), *layer.parameters()]
    weight = torch.randn(4, 9, 32)

    def function() -> torch.Tensor:
        torch.manual_seed(3)
        return (Layer.of(KINDS[kind](layer), hidden, None, bias, torch.float32) * weight).sum()

    gradients = torch.autograd.grad(function(), inputs)
    for values, gradient in zip(inputs, gradients, strict=True):
        direction = gradient / (gradient.norm() + 1e-12) * 0.01
        with torch.no_grad():
            after = (values.add_(direction), function())[1]
            before = (values.sub_(2 * direction), function())[1]
            values.add_(direction)
        torch.testing.assert_close((after - before) / 2, (gradient * direction).sum(), rtol=0.02, atol=2e-4)


def dropout_of(seed: int, rows: int, rate: float) -> torch.Tensor:
    """Return the multipliers of the only attention weight of every row."""
    projected, context = torch.zeros(rows, 3, 16), torch.empty(rows, 16)
    projected[:, 2] = 1
    call("attention", torch.float32, rows, 1, 1, 16, projected, torch.zeros(48), None, None, 0, seed, rate, context)
    return context[:, 0]


def test_dropout_has_its_share_and_is_independent_of_its_neighbors_and_of_other_seeds() -> None:
    rows, rate = 100_000, 0.25
    torch.manual_seed(0)
    seeds = torch.randint(2**62, (3,)).tolist()
    drawn = [dropout_of(seed, rows, rate) for seed in seeds]
    assert torch.equal(drawn[0], dropout_of(seeds[0], rows, rate))
    for values in drawn:
        assert set(values.tolist()) == {0.0, torch.tensor(1 / (1 - rate)).item()}
        assert abs((values == 0).double().mean() - rate) < 5 * (rate * (1 - rate) / rows) ** 0.5
    others = torch.stack([*drawn, *(drawn[0].roll(by) for by in (1, 2, 16, 384))])
    assert (torch.corrcoef(others) - torch.eye(len(others))).abs().max() < 5 / rows**0.5


def test_fewer_threads_than_were_asked_for_do_all_the_work() -> None:
    code = (
        "import torch; from tasks.kernels.library import call; torch.set_num_threads(2); total = torch.zeros(100_000); "
        "call('add', torch.float32, 100_000, total, torch.ones(100_000)); assert total.sum() == 100_000"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_THREAD_LIMIT": "1"}, check=True)


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
@pytest.mark.parametrize("tokens", [12, 40])
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
    assert narrow == linears.keys()
    assert all(torch.equal(values.float(), expected[name]) for name, values in found.items())


@both
def test_only_training_goes_this_way(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    types = []

    def note(parts: Any, hidden: torch.Tensor, present: Any, bias: Any, dtype: torch.dtype) -> torch.Tensor:
        types.append(dtype)
        return hidden

    monkeypatch.setattr(Layer, "of", note)
    ids, model = torch.ones(1, 4, dtype=torch.long), encoder(kind)
    fuse_layers(model)
    model(input_ids=ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(input_ids=ids)
        model.eval()(input_ids=ids)
    assert types == [torch.float32] * 2 + [torch.bfloat16] * 2


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
