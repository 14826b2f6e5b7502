"""Compressors: sums of gradients over the ranks with fewer bytes, behind one interface (base.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from include.fields.ranks import Communication
from tasks.communication.compression.base import Compressor, Half, Uncompressed
from tasks.communication.compression.coded import OneBit, Quantized, TopK
from tasks.communication.compression.powersgd import PowerSGD
from tasks.communication.link import Link

#: The compressors by the name that communication.compression gives them: a new one is a class and a row here.
COMPRESSORS: dict[str, Callable[[Communication], Callable[..., Compressor]]] = {
    "none": lambda settings: Uncompressed,
    "fp16": lambda settings: Half,
    "int8": lambda settings: partial(Quantized, bits=8),
    "int4": lambda settings: partial(Quantized, bits=4),
    "onebit": lambda settings: OneBit,
    "topk": lambda settings: partial(TopK, share=settings.topk_share),
    "powersgd": lambda settings: partial(PowerSGD, rank=settings.powersgd_rank),
}


def compressor(
    settings: Communication, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device
) -> Compressor:
    """Build the compressor that the experiment names, for one bucket (see Compressor)."""
    return COMPRESSORS[settings.compression](settings)(name, shapes, link, device)
