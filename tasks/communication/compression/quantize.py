"""A quarter or an eighth of the bytes: integers of 8 or 4 bits, with one scale per block."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import pad

from tasks.communication.compression.base import Recoded
from tasks.communication.link import Link

BLOCK = 256  # elements that share a scale: with 8 bits the scales are 1.5 % of the bytes, with 4 bits 3 %
SMALLEST = torch.finfo(torch.float32).tiny  # the scale of a block of zeros


class Quantized(Recoded):
    """Rounds each block to the multiples of 1/127 (8 bits) or 1/7 (4 bits) of its largest element."""

    block = BLOCK

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device, bits: int) -> None:
        super().__init__(name, shapes, link, device)
        self._bits, self._top = bits, 2 ** (bits - 1) - 1

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Return the scales of the blocks, fp32, followed by the integers."""
        blocks = pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK)
        scales = (blocks.abs().amax(1, keepdim=True) / self._top).clamp_(min=SMALLEST)
        numbers = (blocks / scales).round_().to(torch.int8).flatten()
        if self._bits == 4:
            numbers = pack4(numbers)
        return torch.cat([scales.flatten().view(torch.uint8), numbers.view(torch.uint8)])

    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """Multiply the integers by the scales of their blocks."""
        scales, numbers = code.tensor_split([-(-count // BLOCK) * 4])
        numbers = unpack4(numbers) if self._bits == 4 else numbers.view(torch.int8)
        values: torch.Tensor = numbers.view(-1, BLOCK) * scales.view(torch.float32).unsqueeze(1)
        return values.flatten()[:count]


def pack4(numbers: torch.Tensor) -> torch.Tensor:
    """Pack integers from -8 to 7, int8 [n] with n even, two per byte; the first half goes into the low four bits."""
    low, high = (numbers + 8).view(torch.uint8).chunk(2)
    return low | high << 4


def unpack4(code: torch.Tensor) -> torch.Tensor:
    """Unpack uint8 [n / 2] to int8 [n]."""
    return torch.cat([code & 15, code >> 4]).view(torch.int8) - 8
