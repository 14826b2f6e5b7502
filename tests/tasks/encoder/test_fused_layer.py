from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel

from tasks.encoder.dropout import Noise
from tasks.encoder.fused_layer import Attention, FeedForward, fuse_layers
from tests.tasks.encoder.samples import tiny_encoder

SIZES: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip


def encoder(dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    config = BertConfig(**SIZES, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return BertModel(config, add_pooling_layer=False).train()


def fused(layer: Any, hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    return FeedForward.of(layer, Attention.of(layer, hidden, mask, torch.float32), torch.float32)


@pytest.mark.parametrize("padded", [False, True])
def test_in_fp32_it_is_transformers_layer_and_gradient(padded: bool) -> None:
    layer, hidden = encoder().encoder.layer[0], torch.randn(3, 7, 32, requires_grad=True)
    mask = None
    if padded:
        mask = torch.ones(3, 1, 1, 7, dtype=torch.bool)
        mask[1, ..., 4:] = False
    weight = torch.randn(3, 7, 32)
    expected, result = layer(hidden, mask), fused(layer, hidden, mask)
    torch.testing.assert_close(result, expected)
    inputs = [hidden, *layer.parameters()]
    for own, reference in zip(
        torch.autograd.grad((result * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(own, reference, rtol=1e-4, atol=1e-5)


def test_gradients_with_dropout_are_those_of_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare them with finite differences; every call draws the same noise."""
    layer = encoder(dropout=0.3).encoder.layer[0].double()
    monkeypatch.setattr(Noise, "__init__", lambda self: setattr(self, "_random", torch.Generator().manual_seed(3)))
    monkeypatch.setattr(
        Noise, "draw", lambda self, shape, rate, dtype: (
            torch.rand(shape, generator=self._random, dtype=dtype) >= rate
        ).to(dtype) / (1 - rate),
    )  # fmt: skip
    hidden = torch.randn(2, 3, 32, dtype=torch.double, requires_grad=True)

    def function(values: torch.Tensor) -> torch.Tensor:
        return FeedForward.of(layer, Attention.of(layer, values, None, torch.double), torch.double)

    assert torch.autograd.gradcheck(function, hidden, atol=1e-6)


def test_in_bf16_it_is_as_near_to_fp32_as_autocast_is() -> None:
    ids = torch.randint(0, 50, (8, 12), generator=torch.Generator().manual_seed(1))
    plain, quick = encoder(), encoder()
    fuse_layers(quick)
    exact = plain(input_ids=ids).last_hidden_state
    with torch.autocast("cpu", dtype=torch.bfloat16):
        usual, own = plain(input_ids=ids).last_hidden_state, quick(input_ids=ids).last_hidden_state
    assert own.dtype == torch.float32
    assert 0 < (own - exact).norm() < 1.5 * (usual - exact).norm()


def test_only_training_in_bf16_goes_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def note(layer: Any, hidden: torch.Tensor, *rest: Any) -> torch.Tensor:
        calls.append(layer)
        return hidden

    monkeypatch.setattr(Attention, "of", note)
    ids, model = torch.ones(1, 4, dtype=torch.long), encoder()
    fuse_layers(model)
    model(input_ids=ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.eval()(input_ids=ids)
        assert calls == []
        model.train()(input_ids=ids)
    assert len(calls) == 2


def test_parameters_and_their_names_stay(tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(tiny_encoder(tmp_path / "encoder"))
    names = list(model.state_dict())
    fuse_layers(model)
    assert list(model.state_dict()) == names
