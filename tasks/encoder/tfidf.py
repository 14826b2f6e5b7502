"""A linear model on TF-IDF of tokens and of pairs of neighboring tokens, as a model of transformers.

transformers has no class for it, so this file is saved with each model of this kind, as pooled_encoder.py is. For that
reason it imports only torch and transformers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

_FACTOR = 40_503  # 2 ** 16 over the golden ratio (Knuth), small enough for libraries that count in 32 bits


class TfidfConfig(PretrainedConfig):
    """The configuration of a TfidfForSequenceClassification.

    Args:
        vocab_size: number of tokens, each of which is a feature.
        buckets: number of features that stand for pairs of neighboring tokens. A hash assigns each pair to one.
        type_vocab_size: 2 if rows are pairs of texts, whose similarity is one more feature; otherwise 1.
        **values: values that every configuration has, such as id2label.
    """

    model_type = "tfidf"

    def __init__(self, vocab_size: int = 1, buckets: int = 2**18, type_vocab_size: int = 1, **values: Any) -> None:
        super().__init__(**values)
        self.vocab_size = vocab_size
        self.buckets = buckets
        self.type_vocab_size = type_vocab_size

    @property
    def hidden_size(self) -> int:
        """The number of features."""
        return self.vocab_size + self.buckets + (self.type_vocab_size > 1)


class TfidfModel(PreTrainedModel):
    """Turns token ids into a sparse vector: TF-IDF of tokens and pairs, of length 1, and the similarity of pairs."""

    config_class = TfidfConfig
    base_model_prefix = "encoder"

    def __init__(self, config: TfidfConfig) -> None:
        super().__init__(config)
        # Inverse document frequencies: 0 for features that no training row has, which then change nothing.
        self.idf = nn.Parameter(torch.ones(config.vocab_size + config.buckets), requires_grad=False)
        self.post_init()

    def ngrams(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features of tokens and pairs, and 1 or, for padding, 0, both int64 [rows, 2 * tokens - 1]."""
        pairs = (input_ids[:, :-1] * _FACTOR + input_ids[:, 1:]) % self.config.buckets + self.config.vocab_size
        return torch.cat([input_ids, pairs], 1), torch.cat([attention_mask, attention_mask[:, 1:]], 1)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features, int64, and their values, float32, both [rows, features], of BERT's inputs, [rows, tokens].

        A feature that occurs several times in a row has the sum of its values. Only pairs need token_type_ids.
        """
        features, present = self.ngrams(input_ids, attention_mask)
        idf = self.idf[features] * present
        equal = (features[:, :, None] == features[:, None, :]).to(idf.dtype)
        values = idf / _product(idf, equal, idf).sqrt().clamp_min(1e-9)
        if self.config.type_vocab_size > 1:
            assert token_type_ids is not None  # the tokenizer of a model for pairs returns them
            second = idf * torch.cat([token_type_ids, token_type_ids[:, 1:]], 1)
            first = idf - second
            lengths = (_product(first, equal, first) * _product(second, equal, second)).sqrt()
            values = torch.cat([values, _product(first, equal, second) / lengths.clamp_min(1e-9)], 1)
            features = torch.cat([features, torch.full_like(features[:, :1], self.config.hidden_size - 1)], 1)
        return features, values


class TfidfForSequenceClassification(PreTrainedModel):
    """TF-IDF followed by a linear layer."""

    config_class = TfidfConfig
    base_model_prefix = "encoder"

    def __init__(self, config: TfidfConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.encoder = TfidfModel(config)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        **_: Any,
    ) -> SequenceClassifierOutput:
        """Compute logits; the arguments are those of TfidfModel."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        features, values = self.encoder(input_ids, mask, token_type_ids)
        products = self.classifier.weight[:, features] * values  # the other features are 0
        return SequenceClassifierOutput(logits=products.sum(-1).T + self.classifier.bias)


def _product(left: torch.Tensor, equal: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the scalar product of two sparse vectors per row, [rows, 1]; `equal` is 1 where features are the same."""
    return (left[:, None, :] @ equal @ right[:, :, None])[:, 0]


TfidfConfig.register_for_auto_class()
TfidfForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
