"""Encoders that compute no padding: they see a batch as one row of tokens, and attention keeps its rows apart."""

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

ATTENTION = "padding_free"  # its name among transformers' attention functions
_LARGEST_HEAD = 256  # of flash attention's kernels
_TOLERANCE = 1e-3  # of a check in fp32, whose outputs are about 1


def allow_packing(encoder: PreTrainedModel) -> None:
    """Let an encoder compute packed batches beside padded ones.

    Raises BadInput for one that cannot: its attention is of its own making (MPNet, DeBERTa), or something else in it
    lets a token see those of other rows (a causal mask, a convolution).
    """
    if encoder.is_backend_compatible():  # type: ignore[no-untyped-call]
        encoder.set_attn_implementation(ATTENTION)
        if _keeps_rows_apart(encoder):
            return
    raise BadInput(
        f"the encoder ({encoder.config.model_type}) cannot do without padding, because its attention does not go "
        "through transformers' attention interface or mixes the rows of a batch: write batching.padding_free: false"
    )


def encode_packed(encoder: PreTrainedModel, packing: Packing, **inputs: torch.Tensor) -> torch.Tensor:
    """The encoder's output for every token, [rows, longest, hidden], 0 for padding, of inputs [rows, longest]."""
    row = {name: packing.pack(values).unsqueeze(0) for name, values in inputs.items()}
    positions = packing.positions.unsqueeze(0) + first_position(encoder)
    output = encoder(**row, position_ids=positions, packing=packing)  # layers pass packing on to attention
    return packing.pad(output.last_hidden_state[0])


def first_position(encoder: PreTrainedModel) -> int:
    """The number of a row's first position: RoBERTa and its kin count from the one after the padding id."""
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
    """Attention as transformers calls it, of heads [1, heads, tokens, size] or, of a padded batch, [rows, ...].

    Returns [1, tokens, heads, size]. The sliding window counts the token itself and those to one side of it.
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
    """Flash attention (Dao 2023) row by row, of query, key and value [tokens, heads, size] in half precision.

    It is the operator below torch.nn.attention.varlen.varlen_attn, which has no dropout. A token sees `reach` tokens
    to either side; -1: all of its row.
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
    """The same on any device and in any precision: attention alone pads."""
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
    """Whether flash attention's kernels take these heads [1, heads, tokens, size] on this card (Ampere or later)."""
    size = query.shape[-1]
    return (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and size % 8 == 0
        and size <= _LARGEST_HEAD
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
    )


def _mask(attention_mask: torch.Tensor | None = None, **rest: Any) -> torch.Tensor | None:
    """A padded batch's mask; a packed one comes without."""
    return None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **rest)


@torch.no_grad()
def _keeps_rows_apart(encoder: PreTrainedModel) -> bool:
    """Whether two rows' output is the same packed as padded."""
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
