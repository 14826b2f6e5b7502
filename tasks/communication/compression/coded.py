"""Sums of codes: the largest elements, integers of 8 or 4 bits, and signs; every rank decodes what the others send."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch.nn.functional import pad

from tasks.communication.compression.base import ErrorFeedback
from tasks.communication.link import Link

GATHERED = 2  # up to this many ranks, an all-gather brings no more bytes, and takes one trip and one rounding
STRIDE = 61  # of the sample that TopK's threshold is estimated from: prime, so that all columns of a matrix occur
SMALLEST = torch.finfo(torch.float32).tiny  # the scale of a quantized block of zeros


class Coded(ErrorFeedback):
    """Sends a code of gradient plus residual. The codes are gathered, and every rank adds what they decode to."""

    @abstractmethod
    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Encode fp32 [n] as uint8, whose length depends on n alone. NaN and infinity must decode to such again."""

    @abstractmethod
    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """Decode a code of `count` elements to fp32 [count]."""

    def start(self, gradient: torch.Tensor) -> None:
        """Send the code of gradient plus residual."""
        wanted = gradient.add_(self.residual)
        code = self.encode(wanted)
        self.keep(wanted - self.decode(code, self.elements))
        self._handle = self.link.all_gather(code, self.name)

    def finish(self) -> torch.Tensor:
        """Decode the ranks' codes, and add them."""
        first, *others = self.link.wait(self._handle).chunk(self.link.size)
        total = self.decode(first, self.elements)
        for code in others:
            total += self.decode(code, self.elements)
        return total


class Recoded(Coded):
    """Every rank sums one shard of the gradient, and sends the code of the sum (DoubleSqueeze, Tang et al. 2019).

    It adds its own shard without encoding it, and keeps the error of the sum's code as the residual of that shard. With
    codes of S bytes, each of N ranks receives 2 (N - 1) / N S; an all-gather would bring (N - 1) S.
    """

    block: int  # elements that are encoded together; shards begin at its multiples

    def start(self, gradient: torch.Tensor) -> None:
        """Send each of the other ranks the code of the shard that it sums."""
        if self.link.size <= GATHERED:
            super().start(gradient)
            return
        shards = torch.split(gradient.add_(self.residual), self._lengths())
        codes = [self.encode(shard) for shard in shards]
        sent = [self.decode(code, len(shard)) for code, shard in zip(codes, shards, strict=True)]
        self._own = shards[self.link.rank].clone()
        self.keep(gradient - torch.cat(sent))
        self._sizes = [len(code) for code in codes]
        self._handle = self.link.all_to_all(codes, self.name)

    def proceed(self) -> None:
        """Sum this rank's shard, and send the code of the sum to all ranks."""
        if self.link.size <= GATHERED:
            return
        for code in self.link.wait(self._handle).chunk(self.link.size - 1):
            self._own += self.decode(code, len(self._own))
        code = self.encode(self._own)
        torch.split(self.residual, self._lengths())[self.link.rank].copy_(self._own - self.decode(code, len(self._own)))
        self._handle = self.link.all_gather(code, f"{self.name}.sum")

    def finish(self) -> torch.Tensor:
        """Decode the codes of the sums."""
        if self.link.size <= GATHERED:
            return super().finish()
        codes = torch.split(self.link.wait(self._handle), self._sizes)
        return torch.cat([self.decode(code, count) for code, count in zip(codes, self._lengths(), strict=True)])

    def _lengths(self) -> list[int]:
        ranks = self.link.size
        length = -(-self.elements // (self.block * ranks)) * self.block
        ends = [min(rank * length, self.elements) for rank in range(ranks + 1)]
        return [end - start for start, end in pairwise(ends)]


class TopK(Coded):
    """Sends a share of the elements, the largest by absolute value (Aji and Heafield 2017; Stich et al. 2018)."""

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device, share: float) -> None:
        super().__init__(name, shapes, link, device)
        self._count = max(1, round(share * self.elements))

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Return the elements, fp32, followed by their positions, int32."""
        positions = largest(values.abs(), self._count)
        return torch.cat([values[positions].view(torch.uint8), positions.int().view(torch.uint8)])

    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """Return zeros with these elements at their positions."""
        values, positions = code.chunk(2)
        dense = torch.zeros(count, device=code.device)
        dense[positions.view(torch.int32).long()] = values.view(torch.float32)
        return dense


def largest(sizes: torch.Tensor, count: int) -> torch.Tensor:
    """Return the positions of the `count` largest of sizes [n]; NaN counts as the largest."""
    # About twice as many elements pass the threshold: topk of these takes a fifth of the time for 1 % of 4 million.
    sample = sizes[::STRIDE]
    threshold = sample.topk(min(len(sample), 2 * count // STRIDE + 1), sorted=False).values.amin()
    candidates = (~(sizes < threshold)).nonzero().squeeze(1)  # NaN is not smaller
    if len(candidates) < count:
        return sizes.topk(count, sorted=False).indices
    return candidates[sizes[candidates].topk(count, sorted=False).indices]


class Quantized(Recoded):
    """Rounds each block to the multiples of 1/127 (8 bits) or 1/7 (4 bits) of its largest element."""

    block = 256  # elements that share a scale: with 8 bits the scales are 1.5 % of the bytes, with 4 bits 3 %

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device, bits: int) -> None:
        super().__init__(name, shapes, link, device)
        self._bits, self._top = bits, 2 ** (bits - 1) - 1

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Return the scales of the blocks, fp32, followed by the integers."""
        blocks = pad(values, (0, -len(values) % self.block)).view(-1, self.block)
        scales = (blocks.abs().amax(1, keepdim=True) / self._top).clamp_(min=SMALLEST)
        numbers = (blocks / scales).round_().to(torch.int8).flatten()
        if self._bits == 4:
            numbers = pack4(numbers)
        return torch.cat([scales.flatten().view(torch.uint8), numbers.view(torch.uint8)])

    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """Multiply the integers by the scales of their blocks."""
        scales, numbers = code.tensor_split([-(-count // self.block) * 4])
        numbers = unpack4(numbers) if self._bits == 4 else numbers.view(torch.int8)
        values: torch.Tensor = numbers.view(-1, self.block) * scales.view(torch.float32).unsqueeze(1)
        return values.flatten()[:count]


def pack4(numbers: torch.Tensor) -> torch.Tensor:
    """Pack integers from -8 to 7, int8 [n] with n even, two per byte; the first half goes into the low four bits."""
    low, high = (numbers + 8).view(torch.uint8).chunk(2)
    return low | high << 4


def unpack4(code: torch.Tensor) -> torch.Tensor:
    """Unpack uint8 [n / 2] to int8 [n]."""
    return torch.cat([code & 15, code >> 4]).view(torch.int8) - 8


class OneBit(Recoded):
    """EF-SignSGD (Karimireddy et al. 2019): an element becomes its sign times the mean absolute value of its block."""

    block = 2048  # elements that share a magnitude: the magnitudes are 1.5 % of the bytes

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mean absolute values of the blocks, fp32, followed by the signs."""
        missing = -len(values) % self.block
        blocks = pad(values, (0, missing)).view(-1, self.block)
        sizes = blocks.abs().sum(1)
        sizes[:-1] /= self.block
        sizes[-1:] /= self.block - missing
        return torch.cat([sizes.view(torch.uint8), pack(blocks.flatten() >= 0)])

    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """Multiply the signs by the magnitudes of their blocks."""
        sizes, signs = code.tensor_split([-(-count // self.block) * 4])
        sizes = sizes.view(torch.float32).unsqueeze(1)
        values: torch.Tensor = (unpack(signs).view(-1, self.block) * (2 * sizes)).sub_(sizes)
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
