"""Convolutions over word vectors (Kim 2014, "Convolutional Neural Networks for Sentence Classification").

transformers has no class for it, so this file is saved with each model of this kind, as pooled_encoder.py is. For that
reason it imports only torch and transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class TextCNNConfig(PretrainedConfig):
    """The configuration of a TextCNNForSequenceClassification. The defaults are Kim's: 100 filters of each width."""

    model_type = "text-cnn"

    def __init__(
        self,
        vocab_size: int = 1,
        embedding_size: int = 100,
        filters: int = 100,
        widths: Sequence[int] = (3, 4, 5),
        classifier_dropout: float = 0.1,
        **values: Any,
    ) -> None:
        super().__init__(**values)
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.filters = filters
        self.widths = list(widths)
        self.classifier_dropout = classifier_dropout

    @property
    def hidden_size(self) -> int:
        """The length of a text's vector."""
        return self.filters * len(self.widths)


class TextCNNModel(PreTrainedModel):
    """Turns token ids into a vector: the largest output of each filter over all positions."""

    config_class = TextCNNConfig
    base_model_prefix = "encoder"
    _input_embed_layer = "embeddings"

    def __init__(self, config: TextCNNConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding_size, config.filters, width, padding="same") for width in config.widths
        )
        self.post_init()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor]:
        """Return the vectors of texts, [rows, hidden_size], from ids and mask, [rows, tokens]."""
        words = self.embeddings(input_ids)
        mask = attention_mask[:, None, :].to(words.dtype)
        words = words.transpose(1, 2) * mask  # so padding is what a convolution adds at the ends of the text
        # Outputs at padding become 0, which no maximum of outputs of a ReLU is below.
        return (torch.cat([(conv(words).relu() * mask).amax(-1) for conv in self.convolutions], 1),)


class TextCNNForSequenceClassification(PreTrainedModel):
    """Convolutions, dropout and a linear layer."""

    config_class = TextCNNConfig
    base_model_prefix = "encoder"

    def __init__(self, config: TextCNNConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.encoder = TextCNNModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """Compute logits; the arguments are those of TextCNNModel."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(self.encoder(input_ids, mask)[0])))


TextCNNConfig.register_for_auto_class()
TextCNNForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
