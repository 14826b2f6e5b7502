from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, BertModel, PreTrainedModel

from include.stages import BadInput
from tasks.encoder.batching import Batch, TokenTable
from tasks.encoder.loading import add_head
from tasks.encoder.masked_lm import MaskedLanguageModel
from tasks.encoder.models import Classifier
from tasks.encoder.packing import Packing
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


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "electra", "albert", "modernbert"])
@pytest.mark.parametrize("pooling", ["native", "mean", "cls"])
@pytest.mark.parametrize("sentences", [SENTENCES, PAIRS], ids=["one segment", "two segments"])
def test_a_packed_batch_has_the_logits_and_gradients_of_the_padded_one(
    tmp_path: Path, kind: str, pooling: Any, sentences: Sequence[tuple[str, ...]]
) -> None:
    model = add_head(encoder(kind), HeadSpec("classification", 2, pooling, dropout=0.0)).train()
    padded = batch(tmp_path / "train", sentences)
    expected = logits_and_gradients(model, padded)
    allow_packing(model.encoder)
    found = logits_and_gradients(model, padded.packed())
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, atol=2e-5, rtol=1e-4)
    still_padded = logits_and_gradients(model, padded)
    assert all(torch.equal(still_padded[name], values) for name, values in expected.items())


def test_no_padding_goes_through_a_layer(tmp_path: Path) -> None:
    model = add_head(encoder("bert"), HeadSpec("classification", 2)).train()
    allow_packing(model.encoder)
    packed = batch(tmp_path / "train", SENTENCES, length=32).packed()
    shapes: list[tuple[int, ...]] = []
    for layer in cast(BertModel, model.encoder).encoder.layer:
        layer.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    logits_and_gradients(model, packed)
    assert packed.input_ids.shape == (4, 32)
    assert packed.places == 5 + 3 + 10 + 4
    assert shapes == [(1, packed.places, 16)] * 2


def test_hidden_words_are_predicted_without_padding_too(tmp_path: Path) -> None:
    model = MaskedLanguageModel(encoder("roberta")).train()
    padded = batch(tmp_path / "train", SENTENCES)
    hidden = torch.zeros_like(padded.input_ids, dtype=torch.bool)
    hidden[[0, 2, 2, 3], [1, 4, 9, 0]] = True
    parts = (padded.input_ids, padded.attention_mask, padded.token_type_ids, hidden)
    expected = model(*parts)
    allow_packing(model.encoder)
    torch.testing.assert_close(model(*parts, padded.packed().packing), expected)


@pytest.mark.parametrize("kind", ["mpnet", "deberta-v2", "convbert"])
def test_an_encoder_with_attention_of_its_own_is_refused(kind: str) -> None:
    sizes = {"embedding_size": 16} if kind == "convbert" else {}
    with pytest.raises(BadInput, match=rf"the encoder \({kind}\) cannot .* write batching.padding_free: false"):
        allow_packing(encoder(kind, **sizes))


def test_an_encoder_that_would_mix_rows_is_refused() -> None:
    with pytest.raises(BadInput, match=r"the encoder \(llama\) cannot"):  # it looks back only
        allow_packing(encoder("llama", num_key_value_heads=1, head_dim=8))


def test_allowing_it_changes_neither_random_numbers_nor_the_mode_nor_what_is_saved(tmp_path: Path) -> None:
    model = encoder("bert").train()
    state, config = torch.get_rng_state(), model.config.to_dict()
    allow_packing(model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert model.config.to_dict() == config
    model.save_pretrained(tmp_path)
    assert AutoModel.from_pretrained(tmp_path).config._attn_implementation == "sdpa"


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
