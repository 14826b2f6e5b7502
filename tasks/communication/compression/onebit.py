"""A thirty-second of the bytes: the sign of every element, and one size for every block."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from tasks.communication.compression.recoded import Recoded

BLOCK = 2048  # elements with a size of their own: the sizes are 1.5 % of the bytes


class OneBit(Recoded):
    """Each element becomes plus or minus its block's mean absolute value (EF-SignSGD, Karimireddy et al. 2019)."""

    block = BLOCK

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """The blocks' mean absolute values, fp32, then the signs."""
        missing = -len(values) % BLOCK
        blocks = pad(values, (0, missing)).view(-1, BLOCK)
        sizes = blocks.abs().sum(1)
        sizes[:-1] /= BLOCK
        sizes[-1:] /= BLOCK - missing
        return torch.cat([sizes.view(torch.uint8), pack(blocks.flatten() >= 0)])

    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """The signs times their block's size."""
        sizes, signs = code.tensor_split([-(-count // BLOCK) * 4])
        sizes = sizes.view(torch.float32).unsqueeze(1)
        values: torch.Tensor = (unpack(signs).view(-1, BLOCK) * (2 * sizes)).sub_(sizes)
        return values.flatten()[:count]


def pack(bits: torch.Tensor) -> torch.Tensor:
    """Truth values, bool [n] with n a multiple of 8, eight to a byte.

    The first eighth is every byte's lowest bit, the second its next, and so on: long rows, which vector units like.
    """
    first, *others = bits.view(torch.uint8).chunk(8)
    code = first.clone()
    for place, row in enumerate(others, start=1):
        code |= row << place
    return code


def unpack(code: torch.Tensor) -> torch.Tensor:
    """What was packed, as 0 and 1: uint8 [n], out of uint8 [n / 8]."""
    places = torch.arange(8, dtype=torch.uint8, device=code.device).unsqueeze(1)
    return ((code >> places) & 1).flatten()
