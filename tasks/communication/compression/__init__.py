"""Ways of summing gradients over the ranks with fewer bytes: one interface (base.py), one file each."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from include.sections import Communication
from tasks.communication.compression.base import Compressor
from tasks.communication.compression.fp16 import Half
from tasks.communication.compression.none import Uncompressed
from tasks.communication.compression.onebit import OneBit
from tasks.communication.compression.powersgd import PowerSGD
from tasks.communication.compression.quantize import Quantized
from tasks.communication.compression.topk import TopK
from tasks.communication.link import Link


def compressor(
    settings: Communication, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device
) -> Compressor:
    """The compressor that the experiment names, for one bucket."""
    bucket = (name, shapes, link, device)
    match settings.compression:
        case "none":
            return Uncompressed(*bucket)
        case "fp16":
            return Half(*bucket)
        case "int8":
            return Quantized(*bucket, bits=8)
        case "int4":
            return Quantized(*bucket, bits=4)
        case "onebit":
            return OneBit(*bucket)
        case "topk":
            return TopK(*bucket, settings.topk_share)
        case "powersgd":
            return PowerSGD(*bucket, settings.powersgd_rank)
