"""Encoders without padding: a batch is one sequence of tokens, and attention is restricted to tokens of a row."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from include.stages import BadInput
from tasks.encoder.packing import Packing

ATTENTION = "padding_free"  # name under which transformers finds the attention function
_LARGEST_HEAD = 256  # largest head size that the kernels of flash attention support
_TOLERANCE = 1e-3  # for outputs in fp32 whose magnitude is about 1


def allow_packing(encoder: PreTrainedModel) -> None:
    """Enable an encoder to compute packed batches in addition to padded ones.

    Raises:
        BadInput: if the encoder does not support it, because it implements attention itself (MPNet, DeBERTa) or because
            something other than attention mixes tokens (a convolution) or its attention is causal.
    """
    if encoder.is_backend_compatible():  # type: ignore[no-untyped-call]
        encoder.set_attn_implementation(ATTENTION)
        if _keeps_rows_apart(encoder):
            return
    raise BadInput(
        f"the encoder ({encoder.config.model_type}) cannot do without padding, because it does not use "
        "transformers' attention interface or would mix the rows of a batch: write batching.padding_free: false"
    )


def encode_packed(encoder: PreTrainedModel, packing: Packing, **inputs: torch.Tensor) -> torch.Tensor:
    """Run an encoder on a packed batch.

    Args:
        encoder: an encoder that allow_packing has accepted.
        packing: the packing of the batch.
        **inputs: inputs of the encoder by name, each [rows, longest row].

    Returns:
        The output for every token and 0 for padding, [rows, longest row, hidden].
    """
    row = {name: packing.pack(values).unsqueeze(0) for name, values in inputs.items()}
    positions = packing.positions.unsqueeze(0) + first_position(encoder)
    output = encoder(**row, position_ids=positions, packing=packing)  # The layers pass packing on to attention.
    return packing.pad(output.last_hidden_state[0])


def first_position(encoder: PreTrainedModel) -> int:
    """Return the number of the first position of a row.

    RoBERTa and similar encoders count positions from the padding id plus 1, all others from 0.
    """
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

    Args:
        module: the attention module.
        query: queries, [1, heads, tokens, head size] for a packed batch, [rows, heads, longest row, head size] for a
            padded one.
        key: keys, shaped like the queries; they may have fewer heads.
        value: values, shaped like the keys.
        attention_mask: the mask of a padded batch; None for a packed one.
        packing: the packing of a packed batch; None for a padded one.
        dropout: dropout probability of the attention weights.
        scaling: factor for the scores; None for the inverse square root of the head size.
        sliding_window: number of tokens on one side that a token attends to, including itself; None for no limit.
        **rest: other arguments for transformers' attention function.

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

    Args:
        heads: query, key and value in half precision, each [tokens, heads, head size].
        packing: the packing of the batch.
        dropout: dropout probability of the attention weights.
        scaling: factor for the scores; None for the inverse square root of the head size.
        reach: number of tokens on either side that a token attends to; -1 for all tokens of its row.

    Returns:
        The attention output, [tokens, heads, head size].
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
    """Return whether flash attention supports these heads on this device (a GPU of the Ampere generation or later)."""
    size = query.shape[-1]
    return (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and size % 8 == 0
        and size <= _LARGEST_HEAD
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
    )


def _mask(attention_mask: torch.Tensor | None = None, **rest: Any) -> torch.Tensor | None:
    """Return the mask of a padded batch, or None for a packed batch."""
    return None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **rest)


@torch.no_grad()
def _keeps_rows_apart(encoder: PreTrainedModel) -> bool:
    """Return whether the output of a small batch of two rows is the same packed and padded."""
    training = encoder.training
    encoder.eval()  # type: ignore[no-untyped-call]
    words = encoder.config.vocab_size
    ids = (torch.arange(2, 14, device=encoder.device) * (words // 14)).view(2, 6)
    mask = torch.ones_like(ids)
    mask[0, 3:] = 0
    packing = Packing.of(mask.cpu()).to(encoder.device)
    packed = packing.pack(encode_packed(encoder, packing, input_ids=ids))
    padded = packing.pack(encoder(input_ids=ids, attention_mask=mask).last_hidden_state)
    encoder.train(training)
    return torch.allclose(packed, padded, rtol=_TOLERANCE, atol=_TOLERANCE)


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, _mask)
