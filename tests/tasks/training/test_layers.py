from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig, AutoModel, PreTrainedModel

from include.fields.training import Training
from include.stages import BadInput
from tasks.encoder.loading import add_head
from tasks.encoder.spec import HeadSpec
from tasks.training.layers import freeze, levels
from tasks.training.optim import settings

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50,
    "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
    "sep_token_id": 2,
}  # fmt: skip
OWN_SIZES: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 16, "hidden_dim": 32, "n_layers": 3, "n_heads": 2},
    "albert": {"embedding_size": 8},
    "electra": {"embedding_size": 8},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "norm_rel_ebd": "layer_norm"},
    "xlm": {"emb_dim": 16, "n_layers": 3, "n_heads": 2},
}


def three(*prefixes: str) -> dict[str, int]:
    return {f"{prefix}.{layer}.": layer + 1 for prefix in prefixes for layer in range(3)}


#: The level of all parameters whose names begin so.
LEVELS = {
    "bert": {"embeddings.": 0, **three("encoder.layer")},
    "roberta": {"embeddings.": 0, **three("encoder.layer")},
    "mpnet": {"embeddings.": 0, "encoder.relative_attention_bias.": 0, **three("encoder.layer")},
    "distilbert": {"embeddings.": 0, **three("transformer.layer")},
    "albert": {
        "embeddings.": 0, "encoder.embedding_hidden_mapping_in.": 0, "encoder.albert_layer_groups.": 1,
    },
    "electra": {"embeddings.": 0, "embeddings_project.": 0, **three("encoder.layer")},
    "modernbert": {"embeddings.": 0, **three("layers"), "final_norm.": 3},
    "deberta-v2": {
        "embeddings.": 0, "encoder.rel_embeddings.": 0, **three("encoder.layer"), "encoder.LayerNorm.": 3,
    },
    "xlm": {
        "embeddings.": 0, "position_embeddings.": 0, "layer_norm_emb.": 0,
        **three("attentions", "layer_norm1", "ffns", "layer_norm2"),
    },
}  # fmt: skip


def encoder(kind: str, **values: Any) -> PreTrainedModel:
    config = AutoConfig.for_model(kind, **{**SIZES, **OWN_SIZES.get(kind, {}), **values})
    model: PreTrainedModel = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    return model


def expected_levels(kind: str, model: PreTrainedModel) -> dict[str, int]:
    names = [name for name, _ in model.named_parameters() if not name.startswith("pooler.")]
    expected = {name: level for prefix, level in LEVELS[kind].items() for name in names if name.startswith(prefix)}
    assert expected.keys() == set(names)
    assert all(any(name.startswith(prefix) for name in names) for prefix in LEVELS[kind])
    return expected


@pytest.mark.parametrize("kind", LEVELS)
def test_every_parameter_has_its_level(kind: str) -> None:
    model = encoder(kind)
    assert levels(model) == expected_levels(kind, model)


@pytest.mark.parametrize("kind", LEVELS)
def test_rates_fall_layer_by_layer_and_only_matrices_decay(kind: str) -> None:
    model = add_head(encoder(kind), HeadSpec("classification", 2, "mean"))
    level = expected_levels(kind, model.encoder)
    found = settings(model, Training(layer_decay=0.5, head_rate=3, weight_decay=0.1))
    assert found.keys() == {name for name, _ in model.named_parameters()}
    top = max(level.values())
    for name, parameter in model.named_parameters():
        below = name.removeprefix("model.encoder.")
        assert found[name].rate == (3 if name.startswith("model.classifier.") else 0.5 ** (top - level[below])), name
        vector = parameter.ndim == 1 or below == "encoder.relative_attention_bias.weight"
        assert found[name].weight_decay == (0 if vector else 0.1), name


def test_the_rates_of_bert_by_hand() -> None:
    found = settings(
        add_head(encoder("bert"), HeadSpec("classification", 2, "mean")), Training(layer_decay=0.8, head_rate=2)
    )
    rates = {name: found[name].rate for name in found if name.endswith(("query.weight", "word_embeddings.weight"))}
    assert rates == pytest.approx({
        "model.encoder.embeddings.word_embeddings.weight": 0.512,
        "model.encoder.encoder.layer.0.attention.self.query.weight": 0.64,
        "model.encoder.encoder.layer.1.attention.self.query.weight": 0.8,
        "model.encoder.encoder.layer.2.attention.self.query.weight": 1,
    })  # fmt: skip
    assert found["model.classifier.bias"].rate == 2


@pytest.mark.parametrize("kind", LEVELS)
def test_the_lowest_layers_and_the_embeddings_are_frozen(kind: str) -> None:
    model = add_head(encoder(kind), HeadSpec("classification", 2, "mean"))
    level = expected_levels(kind, model.encoder)
    freeze(model.encoder, 0)
    assert all(parameter.requires_grad for parameter in model.parameters())
    freeze(model.encoder, 1)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {f"model.encoder.{name}" for name, number in level.items() if number <= 1}
    assert settings(model, Training()).keys() == {name for name, _ in model.named_parameters()} - frozen


def test_more_layers_than_there_are_cannot_be_frozen() -> None:
    with pytest.raises(BadInput, match=r"freeze_layers is 4, but the encoder has 3 .*: write 3 or less"):
        freeze(encoder("bert"), 4)
    with pytest.raises(BadInput, match="has 1 with weights of their own"):
        freeze(encoder("albert"), 2)


def test_the_pooler_belongs_to_the_head() -> None:
    model = add_head(encoder("bert"), HeadSpec("classification", 2, "native"))
    freeze(model.encoder, 3)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    pooler = {"model.bert.pooler.dense.weight", "model.bert.pooler.dense.bias"}
    assert trained == pooler | {"model.classifier.weight", "model.classifier.bias"}
    assert {setting.rate for setting in settings(model, Training(head_rate=3)).values()} == {3}
