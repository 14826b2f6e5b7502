"""Encoders without padding: a batch is one sequence of tokens, and attention is restricted to tokens of a row."""

from __future__ import annotations

import copy
import math
import types
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    MPNetForSequenceClassification,
    MPNetModel,
    PreTrainedModel,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling, SequenceClassifierOutput
from transformers.models.mpnet.modeling_mpnet import MPNetSelfAttention

from tasks.encoder.batching import Packing

ATTENTION = "padding_free"  # name under which transformers finds the attention function
_LARGEST_HEAD = 256  # largest head size that the kernels of flash attention support
_TOLERANCE = 1e-3  # for outputs in fp32 whose magnitude is about 1


def allow_packing(model: PreTrainedModel) -> bool:
    """Enable a model to compute packed batches, with the argument `packing`, if it can, and return whether it can.

    It cannot if its encoder implements attention itself (DeBERTa; MPNet does too, but can), if something other than
    attention mixes tokens (a convolution), or if its attention is causal. It is then left as it was.
    """
    encoder = cast(PreTrainedModel, model.base_model)
    if not (isinstance(encoder, MPNetModel) or encoder.is_backend_compatible()):  # type: ignore[no-untyped-call]
        return False
    trial = copy.deepcopy(model)
    _accept_packing(trial)
    if not (_keeps_rows_apart(cast(PreTrainedModel, trial.base_model)) and _keeps_rows_apart(trial)):
        return False
    _accept_packing(model)
    return True


def _accept_packing(model: PreTrainedModel) -> None:
    encoder: Any = model.base_model
    if isinstance(encoder, MPNetModel):
        encoder.forward = partial(_mpnet_encode, encoder, encoder.forward)
        layers: Any = encoder.encoder.layer
        for layer in layers:
            attention = layer.attention.attn
            attention.forward = types.MethodType(_mpnet_attend, attention)
        if isinstance(model, MPNetForSequenceClassification):
            model.forward = partial(_mpnet_classify, model, model.forward)
    else:
        encoder.set_attn_implementation(ATTENTION)
    encoder.forward = partial(_forward, encoder, encoder.forward)


def _forward(
    encoder: PreTrainedModel,
    forward: Callable[..., Any],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    *,
    packing: Packing | None = None,
    token_type_ids: torch.Tensor | None = None,
    **rest: Any,
) -> Any:
    """Run an encoder on a batch; if it is packed, the output is 0 for padding, [rows, longest row, hidden]."""
    segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
    if packing is None:
        return forward(input_ids, attention_mask=attention_mask, **segments, **rest)
    row = {name: packing.pack(values)[None] for name, values in {"input_ids": input_ids, **segments}.items()}
    positions = packing.positions[None] + first_position(encoder)
    output = forward(**row, position_ids=positions, packing=packing)  # The layers pass packing on to attention.
    tokens = packing.pad(output.last_hidden_state[0])
    return BaseModelOutputWithPooling(last_hidden_state=tokens, pooler_output=_pool(encoder, tokens))


def _pool(encoder: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor | None:
    """Return what the encoder's pooler, which has only seen the packed batch, computes for each row."""
    pooler, activation = getattr(encoder, "pooler", None), getattr(encoder, "pooler_activation", None)
    if pooler is None:
        return None
    if activation is not None:  # ALBERT's pooler is only a linear layer
        return cast(torch.Tensor, activation(pooler(tokens[:, 0])))
    return cast(torch.Tensor, pooler(tokens))


def first_position(encoder: PreTrainedModel) -> int:
    """Return the number of a row's first position: RoBERTa and its like count from the padding id plus 1."""
    padding = getattr(getattr(encoder, "embeddings", None), "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    packing: Packing | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention for packed and padded batches, with the signature that transformers expects.

    Queries, keys and values are [1, heads, tokens, head size] for a packed batch, and [rows, heads, longest row, head
    size] for a padded one. Keys and values may have fewer heads. `sliding_window` is the number of tokens on one side
    that a token attends to, including itself.

    Returns:
        The attention output, [1, tokens, heads, head size] for a packed batch, and None for the attention weights.
    """
    if packing is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **rest
        )
    heads = [part[0].transpose(0, 1) for part in (query, key, value)]
    reach = -1 if sliding_window is None else sliding_window - 1
    attend = flash_attention if _flash_can(query) else padded_attention
    return attend(heads, packing, dropout, scaling, reach).unsqueeze(0), None


def flash_attention(
    heads: list[torch.Tensor], packing: Packing, dropout: float, scaling: float | None, reach: int
) -> torch.Tensor:
    """Compute flash attention (Dao 2023) for each row of a packed batch.

    It calls the operator that torch.nn.attention.varlen.varlen_attn is built on, because that function has no dropout.
    Query, key and value in half precision, and the result, are [tokens, heads, head size]. `reach` is the number of
    tokens on either side that a token attends to; -1 for all tokens of its row.
    """
    query, key, value = heads
    offsets, longest = packing.offsets, packing.mask.shape[1]
    attended, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, offsets, offsets, longest, longest, dropout, False, False,
        scale=scaling, window_size_left=reach, window_size_right=reach,
    )  # fmt: skip
    return cast(torch.Tensor, attended)


def padded_attention(
    heads: list[torch.Tensor], packing: Packing, dropout: float, scaling: float | None, reach: int
) -> torch.Tensor:
    """Compute the same as flash_attention on any device and in any precision, by padding only for attention."""
    query, key, value = (packing.pad(part).transpose(1, 2) for part in heads)
    mask = packing.mask[:, None, None, :]
    if reach >= 0:
        position = torch.arange(mask.shape[-1], device=mask.device)
        mask = mask & ((position[:, None] - position).abs() <= reach)
    attended = functional.scaled_dot_product_attention(
        query, key, value, mask, dropout, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )
    return packing.pack(attended.transpose(1, 2))


def _flash_can(query: torch.Tensor) -> bool:
    """Return whether flash attention supports these heads on this device, a GPU since Ampere."""
    size = query.shape[-1]
    return (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and size % 8 == 0
        and size <= _LARGEST_HEAD
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
    )


def padding_mask(attention_mask: torch.Tensor | None = None, **options: Any) -> torch.Tensor | None:
    """Return what sdpa_mask of transformers returns: True where a token may attend to another, or None for everywhere.

    Where a batch has no padding, transformers leaves the mask out. To know, Python would have to read the mask of every
    batch and wait until a GPU has computed everything before it. So the mask of a batch on a GPU is always made.
    """
    if attention_mask is not None and _is_far(attention_mask):
        options |= {"allow_is_bidirectional_skip": False, "allow_is_causal_skip": False}
    return sdpa_mask(attention_mask=attention_mask, **options)


def _is_far(mask: torch.Tensor) -> bool:
    return mask.is_cuda


def _mask(attention_mask: torch.Tensor | None = None, **rest: Any) -> torch.Tensor | None:
    return None if attention_mask is None else padding_mask(attention_mask=attention_mask, **rest)


def _mpnet_encode(
    encoder: Any, forward: Callable[..., Any], *values: Any, packing: Packing | None = None, **more: Any
) -> Any:
    """Run MPNet, whose bias for the distances of tokens all rows and layers of a packed batch share."""
    if packing is None:
        return forward(*values, **more)
    hidden = encoder.embeddings(input_ids=more["input_ids"], position_ids=more["position_ids"])
    bias = encoder.encoder.compute_position_bias(packing.mask[:1])  # It reads only the shape: a single row.
    bias = bias.masked_fill(~packing.mask[:, None, None, :], -math.inf)  # [rows, heads, longest row, longest row]
    for layer in encoder.encoder.layer:
        hidden = layer(hidden, packing, bias)[0]  # A layer passes its mask on to attention, so packing takes its place.
    return BaseModelOutput(last_hidden_state=hidden)


def _mpnet_attend(
    attention: Any,
    hidden: torch.Tensor,
    mask: torch.Tensor | Packing | None = None,
    bias: torch.Tensor | None = None,
    **more: Any,
) -> tuple[torch.Tensor, ...]:
    """Compute attention as MPNetSelfAttention does, without transformers' interface; a packed batch row by row.

    Hidden states are [1, tokens, features] for a packed batch, whose packing is the mask, and [rows, longest row,
    features] for a padded one. The bias is added to the scores, [rows, heads, longest row, longest row].
    """
    if not isinstance(mask, Packing):
        usual: Any = MPNetSelfAttention.forward
        return cast(tuple[torch.Tensor, ...], usual(attention, hidden, mask, bias, **more))

    def heads(projection: nn.Linear) -> torch.Tensor:
        values = projection(hidden[0]).unflatten(-1, (attention.num_attention_heads, -1))
        return mask.pad(values).transpose(1, 2)  # [rows, heads, longest row, head size]

    query, key, value = heads(attention.q), heads(attention.k), heads(attention.v)
    dropout = attention.dropout.p if attention.training else 0.0
    attended = functional.scaled_dot_product_attention(query, key, value, bias, dropout)
    return (attention.o(mask.pack(attended.transpose(1, 2)).flatten(1))[None],)


def _mpnet_classify(
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


@torch.no_grad()
def _keeps_rows_apart(model: PreTrainedModel) -> bool:
    """Return whether a batch of two rows has the same output packed and padded, and its packing reaches the encoder."""
    model.eval()  # type: ignore[no-untyped-call]
    encoder, reached = cast(PreTrainedModel, model.base_model), list[bool]()

    def note(module: nn.Module, values: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        reached.append(inputs.get("packing") is not None)

    ids = (torch.arange(2, 14, device=model.device) * (encoder.config.vocab_size // 14)).view(2, 6)
    mask = torch.ones_like(ids)
    mask[0, 3:] = 0
    packing = Packing.of(mask.cpu()).to(model.device)
    hook = encoder.register_forward_pre_hook(note, with_kwargs=True)
    packed = model(input_ids=ids, attention_mask=mask, packing=packing)[0]
    hook.remove()
    padded = model(input_ids=ids, attention_mask=mask)[0]
    if padded.ndim == 3:  # The output for padding means nothing.
        packed, padded = packing.pack(packed), packing.pack(padded)
    return reached == [True] and torch.allclose(packed, padded, rtol=_TOLERANCE, atol=_TOLERANCE)


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, _mask)
AttentionMaskInterface.register("sdpa", padding_mask)
