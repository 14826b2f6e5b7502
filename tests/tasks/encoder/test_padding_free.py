from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    MPNetModel,
    PreTrainedModel,
)

from tasks.encoder.batching import Batch, Packing, TokenTable
from tasks.encoder.fused_layer import fuse_layers
from tasks.encoder.loading import add_head
from tasks.encoder.models import Classifier, MaskedLanguageModel
from tasks.encoder.padding_free import allow_packing, flash_attention, padded_attention
from tasks.encoder.spec import HeadSpec
from tests.tasks.encoder.samples import WORDS, write_split

SIZES = {
    "vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 40, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3,
    "cls_token_id": 2, "sep_token_id": 3,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
OWN_SIZES: dict[str, dict[str, Any]] = {
    "roberta": {"type_vocab_size": 1},
    "distilbert": {"dim": 16, "hidden_dim": 32, "n_layers": 2, "n_heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
    "electra": {"embedding_size": 8},
    "albert": {"embedding_size": 8},
    "modernbert": {"local_attention": 6, "layer_types": ["full_attention", "sliding_attention"]},
}
SENTENCES = [("word1 good word2",), ("word3",), ("word4 word5 bad word6 word7 word8 word9 word10",), ("bad bad",)]
PAIRS = [(*first, *second) for first, second in zip(SENTENCES, reversed(SENTENCES), strict=True)]


def encoder(kind: str, **values: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SIZES, **OWN_SIZES.get(kind, {}), **values})
    model: PreTrainedModel = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    if isinstance(model, MPNetModel):  # As drawn, its biases are too small to matter.
        nn.init.normal_(model.encoder.relative_attention_bias.weight)
    return model


def batch(folder: Path, sentences: Sequence[tuple[str, ...]], length: int = 0) -> Batch:
    return TokenTable.open(write_split(folder, sentences, [0, 1, 1, 0])).batch(np.arange(4), length)


def logits_and_gradients(model: Classifier, batch: Batch) -> dict[str, torch.Tensor]:
    """Return them for a loss to which every logit contributes differently."""
    model.zero_grad()
    logits = model(batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.packing)
    (logits * torch.arange(1, logits.numel() + 1).view_as(logits)).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits.detach(), **gradients}


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "electra", "albert", "modernbert", "mpnet"])
@pytest.mark.parametrize("pooling", ["native", "mean", "cls"])
@pytest.mark.parametrize("sentences", [SENTENCES, PAIRS], ids=["one segment", "two segments"])
def test_a_packed_batch_has_the_logits_and_gradients_of_the_padded_one(
    tmp_path: Path, kind: str, pooling: Any, sentences: Sequence[tuple[str, ...]]
) -> None:
    model = add_head(encoder(kind), HeadSpec("classification", 2, pooling, dropout=0.0)).train()
    padded = batch(tmp_path / "train", sentences)
    expected = logits_and_gradients(model, padded)
    assert allow_packing(model.model)
    found = logits_and_gradients(model, padded.packed())
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, atol=2e-5, rtol=1e-4)
    still_padded = logits_and_gradients(model, padded)
    assert all(torch.equal(still_padded[name], values) for name, values in expected.items())


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
@pytest.mark.parametrize("pooling", ["native", "mean"])
def test_no_padding_goes_through_a_layer(tmp_path: Path, kind: str, pooling: Any) -> None:
    model = add_head(encoder(kind), HeadSpec("classification", 2, pooling)).train()
    allow_packing(model.model)
    packed = batch(tmp_path / "train", SENTENCES, length=32).packed()
    shapes: list[tuple[int, ...]] = []
    for layer in cast(BertModel, model.encoder).encoder.layer:
        layer.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    logits_and_gradients(model, packed)
    assert packed.input_ids.shape == (4, 32)
    assert packed.places == 5 + 3 + 10 + 4
    assert shapes == [(1, packed.places, 16)] * 2


def test_a_position_bias_is_computed_for_the_longest_row_and_once(tmp_path: Path) -> None:
    model = add_head(encoder("mpnet"), HeadSpec("classification", 2)).train()
    allow_packing(model.model)
    shapes: list[tuple[int, ...]] = []
    table = cast(MPNetModel, model.encoder).encoder.relative_attention_bias
    table.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    logits_and_gradients(model, batch(tmp_path / "train", SENTENCES).packed())
    assert shapes == [(10, 10)]


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_fused_layers_compute_a_packed_batch_as_the_others_do(tmp_path: Path, kind: str) -> None:
    model = add_head(encoder(kind), HeadSpec("classification", 2, dropout=0.0)).train()
    allow_packing(model.model)
    packed = batch(tmp_path / "train", SENTENCES).packed()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = logits_and_gradients(model, packed)
        assert fuse_layers(model.encoder)
        found = logits_and_gradients(model, packed)
    assert all(torch.equal(found[name], values) for name, values in expected.items())


@pytest.mark.parametrize("kind", ["roberta", "mpnet"])
def test_hidden_words_are_predicted_without_padding_too(tmp_path: Path, kind: str) -> None:
    model = MaskedLanguageModel(encoder(kind)).train()
    padded = batch(tmp_path / "train", SENTENCES)
    rows, columns = torch.tensor([0, 2, 2, 3]), torch.tensor([1, 4, 9, 0])
    hidden = rows * padded.input_ids.shape[1] + columns
    parts = (padded.input_ids, padded.attention_mask, padded.token_type_ids, hidden)
    expected = model(*parts)
    assert allow_packing(model.encoder)
    torch.testing.assert_close(model(*parts, padded.packed().packing), expected)


REFUSED: dict[str, dict[str, Any]] = {
    "deberta-v2": {}, "convbert": {"embedding_size": 16}, "llama": {"num_key_value_heads": 1, "head_dim": 8},
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)  # attention of its own, a convolution, and attention that looks back only
def test_an_encoder_that_cannot_is_left_as_it_was(tmp_path: Path, kind: str) -> None:
    model = encoder(kind, **REFUSED[kind]).train()
    padded = batch(tmp_path / "train", SENTENCES)
    inputs = {"input_ids": padded.input_ids, "attention_mask": padded.attention_mask}
    attention, expected = model.config._attn_implementation, model(**inputs)[0]
    weights = {name: values.clone() for name, values in model.state_dict().items()}
    assert not allow_packing(model)
    assert model.training
    assert model.config._attn_implementation == attention
    assert all("forward" not in vars(module) for module in model.modules())
    assert all(torch.equal(values, weights[name]) for name, values in model.state_dict().items())
    assert torch.equal(model(**inputs)[0], expected)


class HeadThatKeepsPacking(BertForSequenceClassification):  # type: ignore[no-untyped-call]
    """A head that does not pass `packing` on to its encoder, which computes the padding then."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, packing: Packing | None = None) -> Any:
        return super().forward(input_ids, attention_mask=attention_mask)


def test_a_head_that_does_not_pass_packing_on_is_refused() -> None:
    model = HeadThatKeepsPacking(cast(BertConfig, encoder("bert").config))
    assert not allow_packing(model)
    assert allow_packing(cast(PreTrainedModel, model.base_model))


@pytest.mark.parametrize(("kind", "attention"), [("bert", "sdpa"), ("mpnet", "eager")])
def test_allowing_it_changes_neither_random_numbers_nor_the_mode_nor_what_is_saved(
    tmp_path: Path, kind: str, attention: str
) -> None:
    model = encoder(kind).train()
    state, config = torch.get_rng_state(), model.config.to_dict()
    assert allow_packing(model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert model.config.to_dict() == config
    model.save_pretrained(tmp_path)
    assert AutoModel.from_pretrained(tmp_path).config._attn_implementation == attention


def test_packing_by_hand() -> None:
    packing = Packing.of(torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]]))
    values = torch.tensor([[1, 2, 9], [3, 9, 9], [4, 5, 6]])
    assert packing.pack(values).tolist() == [1, 2, 3, 4, 5, 6]
    assert packing.pad(packing.pack(values)).tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]
    assert packing.positions.tolist() == [0, 1, 0, 0, 1, 2]
    assert packing.offsets.tolist() == [0, 2, 3, 6]
    assert packing.offsets.dtype == torch.int32


def test_attention_drops_as_often_as_it_is_told_to() -> None:
    packing = Packing.of(torch.ones(8, 100))
    torch.manual_seed(0)
    query = key = torch.zeros(800, 2, 100)
    value = torch.eye(100).repeat(8, 1).unsqueeze(1).expand(-1, 2, -1)  # so the output is the weights, 1/100 each
    weights = padded_attention([query, key, value], packing, 0.25, None, -1)
    assert (weights == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert weights.max().item() == pytest.approx(0.01 / 0.75)


@pytest.mark.parametrize("reach", [-1, 2])
def test_the_gpu_branch_calls_its_operator_as_it_is_declared(reach: int) -> None:
    """The meta device checks shapes and derivatives; the values would need a GPU."""
    packing = Packing.of(torch.tensor([[1, 1, 0], [1, 1, 1]])).to(torch.device("meta"))
    heads = [torch.empty(5, 2, 16, dtype=torch.bfloat16, device="meta", requires_grad=True) for _ in range(3)]
    attended = flash_attention(heads, packing, 0.1, 0.25, reach)
    assert attended.shape == (5, 2, 16)
    attended.sum().backward()  # type: ignore[no-untyped-call]
    assert all(part.grad is not None and part.grad.shape == part.shape for part in heads)
