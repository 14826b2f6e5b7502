"""Sums of gradients inside a host, in the memory that its ranks share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tasks.communication.compression.base import Compressor
from tasks.communication.link import Link
from tasks.communication.shared_memory import Host, aligned


class SharedSum(Compressor):
    """Sums a bucket's gradient over the ranks of this host: each rank a part of it, when all have written theirs.

    Attributes:
        own: where this rank writes its gradient, fp32 [elements]. The first rank's own is also where the sum lies, so
            that no rank may write there before all have done with the sum.
    """

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device, host: Host) -> None:
        """Sum among the ranks of the host; `link` counts what this rank reads of the others, as of an all-reduce."""
        super().__init__(name, shapes, link, device)
        self._host = host
        self._regions = [host.take(self.elements) for _ in range(host.count)]
        self.own = self._regions[host.number]
        length = aligned(-(-self.elements // host.count) * 4) // 4  # no two ranks write into one cache line
        self._part = slice(host.number * length, (host.number + 1) * length)
        self._written, self._added, self._back = (host.new_event() for _ in range(3))

    @staticmethod
    def room(elements: int, count: int) -> int:
        """Return the bytes of shared memory that the sum of a bucket takes among so many ranks."""
        return count * aligned(4 * elements)

    def start(self, gradient: torch.Tensor) -> None:
        """Tell that this rank's gradient is written; copy one that is not where it belongs."""
        if gradient is not self.own:
            self.own.copy_(gradient)
        self.link.bytes += 2 * gradient.nbytes * (self._host.count - 1) // self._host.count
        self._host.tell(self._written)

    def proceed(self) -> None:
        """Wait until all gradients are written, and add this rank's part of them."""
        self._host.wait(self._written)
        total, *others = [region[self._part] for region in self._regions]
        for other in others:
            total += other
        self._host.tell(self._added)

    def finish(self) -> torch.Tensor:
        """Wait until all parts are added, and return the sum, which all ranks of the host share."""
        self._host.wait(self._added)
        return self._regions[0]

    def hand_back(self, total: torch.Tensor) -> torch.Tensor:
        """Return what the host's first rank gives as the total."""
        if self._host.number == 0:
            self._regions[0].copy_(total)
            self._host.tell(self._back)
        else:
            self._host.wait(self._back)
        return self._regions[0]
