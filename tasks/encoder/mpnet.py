"""MPNet without padding.

MPNet does not use transformers' attention interface. It computes attention itself and adds a bias to the scores that
depends on the distance between two tokens. For a packed batch, the bias is that of the longest row, and all rows and
layers share it.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from transformers import MPNetForSequenceClassification, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from transformers.models.mpnet.modeling_mpnet import MPNetSelfAttention

from tasks.encoder.packing import Packing


def accept_packing(model: PreTrainedModel) -> None:
    """Make an MPNet model and its encoder take the argument `packing`, as those with the attention interface do.

    Args:
        model: an MPNetModel, or a model for sequence classification with one.
    """
    encoder: Any = model.base_model
    encoder.forward = partial(_encode, encoder, encoder.forward)
    for layer in encoder.encoder.layer:
        attention = layer.attention.attn
        attention.forward = types.MethodType(_attend, attention)
    if isinstance(model, MPNetForSequenceClassification):
        model.forward = partial(_classify, model, model.forward)


def _encode(
    encoder: Any, forward: Callable[..., Any], *values: Any, packing: Packing | None = None, **more: Any
) -> Any:
    """Run the encoder; a packed batch takes `input_ids` and `position_ids`, [1, tokens]."""
    if packing is None:
        return forward(*values, **more)
    hidden = encoder.embeddings(input_ids=more["input_ids"], position_ids=more["position_ids"])
    bias = _row_bias(encoder.encoder, packing)
    for layer in encoder.encoder.layer:
        hidden = layer(hidden, packing, bias)[0]  # A layer passes its mask on to attention, so packing takes its place.
    return BaseModelOutput(last_hidden_state=hidden)


def _row_bias(stack: Any, packing: Packing) -> torch.Tensor:
    """Return what is added to the scores of each row, minus infinity for padding, [rows, heads, longest, longest]."""
    bias: torch.Tensor = stack.compute_position_bias(packing.mask[:1])  # It reads only the shape: a single row.
    return bias.masked_fill(~packing.mask[:, None, None, :], -math.inf)


def _attend(
    attention: Any,
    hidden: torch.Tensor,
    mask: torch.Tensor | Packing | None = None,
    bias: torch.Tensor | None = None,
    **more: Any,
) -> tuple[torch.Tensor, ...]:
    """Compute attention as MPNetSelfAttention does, but for a packed batch row by row.

    Args:
        attention: the MPNetSelfAttention.
        hidden: hidden states, [1, tokens, features] for a packed batch, [rows, longest, features] for a padded one.
        mask: the packing of a packed batch, or the additive mask of a padded one.
        bias: what is added to the scores, [rows, heads, longest, longest].
        **more: other arguments of its own forward pass.

    Returns:
        The projected output, shaped like the hidden states. A padded batch may have more.
    """
    if not isinstance(mask, Packing):
        usual: Any = MPNetSelfAttention.forward
        return cast(tuple[torch.Tensor, ...], usual(attention, hidden, mask, bias, **more))

    def heads(projection: nn.Linear) -> torch.Tensor:
        values = projection(hidden[0]).unflatten(-1, (attention.num_attention_heads, -1))
        return mask.pad(values).transpose(1, 2)  # [rows, heads, longest, head size]

    query, key, value = heads(attention.q), heads(attention.k), heads(attention.v)
    dropout = attention.dropout.p if attention.training else 0.0
    attended = functional.scaled_dot_product_attention(query, key, value, bias, dropout)
    return (attention.o(mask.pack(attended.transpose(1, 2)).flatten(1))[None],)


def _classify(
    model: Any,
    forward: Callable[..., Any],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    packing: Packing | None = None,
    **more: Any,
) -> Any:
    """Compute logits as MPNetForSequenceClassification does, which would not pass `packing` on to its encoder."""
    if packing is None:
        return forward(input_ids, attention_mask=attention_mask, **more)
    tokens = model.mpnet(input_ids, attention_mask=attention_mask, packing=packing).last_hidden_state
    return SequenceClassifierOutput(logits=model.classifier(tokens))
