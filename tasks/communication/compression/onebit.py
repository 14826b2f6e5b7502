"""A thirty-second of the bytes: the sign of every element, and one magnitude per block."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from tasks.communication.compression.base import Recoded

BLOCK = 2048  # elements that share a magnitude: the magnitudes are 1.5 % of the bytes


class OneBit(Recoded):
    """EF-SignSGD (Karimireddy et al. 2019): an element becomes its sign times the mean absolute value of its block."""

    block = BLOCK

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mean absolute values of the blocks, fp32, followed by the signs."""
        missing = -len(values) % BLOCK
        blocks = pad(values, (0, missing)).view(-1, BLOCK)
        sizes = blocks.abs().sum(1)
        sizes[:-1] /= BLOCK
        sizes[-1:] /= BLOCK - missing
        return torch.cat([sizes.view(torch.uint8), pack(blocks.flatten() >= 0)])

    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """Multiply the signs by the magnitudes of their blocks."""
        sizes, signs = code.tensor_split([-(-count // BLOCK) * 4])
        sizes = sizes.view(torch.float32).unsqueeze(1)
        values: torch.Tensor = (unpack(signs).view(-1, BLOCK) * (2 * sizes)).sub_(sizes)
        return values.flatten()[:count]


def pack(bits: torch.Tensor) -> torch.Tensor:
    """Pack bool [n], n a multiple of 8, eight per byte: the first eighth becomes the lowest bit of every byte."""
    first, *others = bits.view(torch.uint8).chunk(8)
    code = first.clone()
    for place, row in enumerate(others, start=1):
        code |= row << place
    return code


def unpack(code: torch.Tensor) -> torch.Tensor:
    """Unpack uint8 [n / 8] to zeros and ones, uint8 [n]."""
    places = torch.arange(8, dtype=torch.uint8, device=code.device).unsqueeze(1)
    return ((code >> places) & 1).flatten()
