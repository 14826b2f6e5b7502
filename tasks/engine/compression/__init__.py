"""Ways of summing gradients over the ranks with fewer bytes: one interface (base.py), one file each."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from include.sections import Communication
from tasks.engine.compression.base import Compressor
from tasks.engine.compression.fp16 import Half
from tasks.engine.compression.none import Uncompressed
from tasks.engine.compression.onebit import OneBit
from tasks.engine.compression.powersgd import PowerSGD
from tasks.engine.compression.quantize import Quantized
from tasks.engine.compression.topk import TopK
from tasks.engine.link import Link


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
