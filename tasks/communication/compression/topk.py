"""Only the largest elements, each behind its position; what is small waits in the residual until it is large."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tasks.communication.compression.base import Coded
from tasks.communication.link import Link

APART = 61  # of the elements that a threshold is judged by: prime, so that a matrix gives all its columns


class TopK(Coded):
    """Sends a bucket's largest elements by absolute value (Aji and Heafield 2017; Stich et al. 2018)."""

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device, share: float) -> None:
        """share: of the bucket's elements that is sent, at least one."""
        super().__init__(name, shapes, link, device)
        self._count = max(1, round(share * self.elements))

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """The elements, fp32, then their positions, int32."""
        positions = largest(values.abs(), self._count)
        return torch.cat([values[positions].view(torch.uint8), positions.int().view(torch.uint8)])

    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """Zero, but for those elements."""
        values, positions = code.chunk(2)
        dense = torch.zeros(count, device=code.device)
        dense[positions.view(torch.int32).long()] = values.view(torch.float32)
        return dense


def largest(sizes: torch.Tensor, count: int) -> torch.Tensor:
    """Positions of the `count` largest of sizes [n]; NaN counts as the largest.

    A threshold that should let twice as many through saves torch.topk most of its work: for 4 M elements and one in a
    hundred it takes a fifth of the time. Where too few pass, topk looks at all.
    """
    sample = sizes[::APART]
    threshold = sample.topk(min(len(sample), 2 * count // APART + 1), sorted=False).values.amin()
    candidates = (~(sizes < threshold)).nonzero().squeeze(1)  # NaN is not smaller
    if len(candidates) < count:
        return sizes.topk(count, sorted=False).indices
    return candidates[sizes[candidates].topk(count, sorted=False).indices]
