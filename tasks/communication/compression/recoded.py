"""Codes whose sum is encoded again, so that the traffic of a rank does not grow with the number of ranks."""

from __future__ import annotations

from itertools import pairwise

import torch

from tasks.communication.compression.base import Coded

GATHERED = 2  # up to so many ranks an all-gather brings no more bytes, and it takes one trip and one rounding


class Recoded(Coded):
    """Every rank sums one shard of the gradient, and sends the code of the sum (DoubleSqueeze, Tang et al. 2019).

    Each rank sends the codes of the other shards to the ranks that sum them. It adds its own shard without encoding
    it, and keeps the error of the code of the sum as the residual of that shard. With codes of S bytes, each of N
    ranks receives 2 (N - 1) / N S; an all-gather would bring (N - 1) S.

    Attributes:
        block: the number of elements that are encoded together. Shards begin at its multiples.
    """

    block: int

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
        """Return the number of elements of each rank's shard; the last ranks may have none."""
        ranks = self.link.size
        length = -(-self.elements // (self.block * ranks)) * self.block
        ends = [min(rank * length, self.elements) for rank in range(ranks + 1)]
        return [end - start for start, end in pairwise(ends)]
