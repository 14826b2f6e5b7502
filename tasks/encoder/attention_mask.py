"""The mask of a padded batch for scaled dot-product attention. To make it, Python does not wait for a GPU.

Where a batch has no padding, transformers leaves the mask out. To know, Python reads the mask of every batch, for which
it would wait until a GPU has computed everything before it. There, the mask is always made.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

_LEFT_OUT = ("allow_is_bidirectional_skip", "allow_is_causal_skip")


def padding_mask(attention_mask: torch.Tensor | None = None, **options: Any) -> torch.Tensor | None:
    """Return what sdpa_mask of transformers returns; of a mask on a GPU, without reading it.

    Args:
        attention_mask: 1 for tokens and 0 for padding, [batch, tokens].
        **options: the other arguments of sdpa_mask.

    Returns:
        True where a token may attend to another one, bool [batch, 1, tokens, tokens]; None if every token may attend
        to all.
    """
    if attention_mask is not None and _is_far(attention_mask):
        options |= dict.fromkeys(_LEFT_OUT, False)
    return sdpa_mask(attention_mask=attention_mask, **options)


def _is_far(mask: torch.Tensor) -> bool:
    return mask.is_cuda


AttentionMaskInterface.register("sdpa", padding_mask)
