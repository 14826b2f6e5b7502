"""A sequence classifier for any encoder: pooling of the token embeddings, dropout and a linear layer.

transformers has no class for it, so this file is saved with each model of this kind, and transformers refuses to load
such a model until its user passes `trust_remote_code=True`. For that reason the file imports only torch and
transformers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class PooledEncoderConfig(PretrainedConfig):
    """The configuration of a PooledEncoderForSequenceClassification.

    Args:
        encoder: the configuration of the encoder, as values of its class. It must contain model_type.
        pooling: how token embeddings become one sentence embedding: their mean, or the first token's (cls).
        classifier_dropout: dropout probability before the linear layer.
        initializer_range: standard deviation of the linear layer's initial weights, by default BERT's.
        **values: values that every configuration has, such as id2label.
    """

    model_type = "pooled-encoder"
    sub_configs: ClassVar = {"encoder": AutoConfig}

    def __init__(
        self,
        encoder: dict[str, Any] | None = None,
        pooling: str = "mean",
        classifier_dropout: float = 0.1,
        initializer_range: float = 0.02,
        **values: Any,
    ) -> None:
        super().__init__(**values)
        if pooling not in ("mean", "cls"):
            raise ValueError(f"pooling is {pooling!r}: it must be mean or cls")
        self.encoder: Any = AutoConfig.for_model(**(encoder or {"model_type": "bert"}))
        self.pooling = pooling
        self.classifier_dropout = classifier_dropout
        self.initializer_range = initializer_range


class PooledEncoderForSequenceClassification(PreTrainedModel):
    """An encoder followed by pooling, dropout and a linear layer."""

    config_class = PooledEncoderConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    _supports_sdpa = True  # The encoder chooses its attention itself.

    def __init__(self, config: PooledEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.encoder: Any = AutoModel.from_config(config.encoder)
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None  # Its output is not used, and its parameters would take memory.
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.encoder.hidden_size, self.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **inputs: Any,
    ) -> SequenceClassifierOutput:
        """Compute logits, and the loss if there are labels, from ids and mask, [batch, tokens].

        The labels are class ids or scores, [batch], or ones for the labels that apply, float [batch, labels].
        """
        inputs.pop("return_dict", None)
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **inputs)
        tokens = output.last_hidden_state
        sentence = tokens[:, 0] if self.config.pooling == "cls" else _mean(tokens, attention_mask)
        logits = self.classifier(self.dropout(sentence))
        loss = None if labels is None else self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=output.hidden_states, attentions=output.attentions
        )


def _mean(tokens: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    if attention_mask is None:
        return tokens.mean(1)
    mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
    return (tokens * mask).sum(1) / mask.sum(1)


PooledEncoderConfig.register_for_auto_class()
PooledEncoderForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
