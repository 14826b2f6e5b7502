"""Codes whose sum is coded again, so that a rank's traffic does not grow with the number of ranks."""

from __future__ import annotations

from itertools import pairwise

import torch

from tasks.communication.compression.base import Coded

GATHERED = 2  # ranks, up to which a gathering brings no more bytes: it is one trip and one rounding


class Recoded(Coded):
    """Every rank adds up a shard of the gradient and hands out the code of that sum (DoubleSqueeze, Tang et al. 2019).

    The codes of the other shards go to the ranks that add them up. A rank takes its own shard as it is, and keeps as
    that shard's residual what the code of the sum misses. So of a code of S bytes, N ranks receive 2 (N - 1) / N S
    each; gathered, it would be (N - 1) S.

    Attributes:
        block: elements that are coded together: shards are cut at its multiples.
    """

    block: int

    def start(self, gradient: torch.Tensor) -> None:
        """Send each of the others the code of the shard that it adds up."""
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
        """Add up this rank's shard, and send the code of the sum to all."""
        if self.link.size <= GATHERED:
            return
        for code in self.link.wait(self._handle).chunk(self.link.size - 1):
            self._own += self.decode(code, len(self._own))
        code = self.encode(self._own)
        torch.split(self.residual, self._lengths())[self.link.rank].copy_(self._own - self.decode(code, len(self._own)))
        self._handle = self.link.all_gather(code, f"{self.name}.sum")

    def finish(self) -> torch.Tensor:
        """What the codes of the sums stand for."""
        if self.link.size <= GATHERED:
            return super().finish()
        codes = torch.split(self.link.wait(self._handle), self._sizes)
        return torch.cat([self.decode(code, count) for code, count in zip(codes, self._lengths(), strict=True)])

    def _lengths(self) -> list[int]:
        """Elements of each rank's shard; the last ranks of many may have none."""
        ranks = self.link.size
        length = -(-self.elements // (self.block * ranks)) * self.block
        ends = [min(rank * length, self.elements) for rank in range(ranks + 1)]
        return [end - start for start, end in pairwise(ends)]
