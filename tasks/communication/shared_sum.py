"""What the ranks of a host do together in the memory that they share: they sum gradients, and update weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tasks.communication.compression.base import Compressor
from tasks.communication.exchange import Owned, Parameters
from tasks.communication.link import Link
from tasks.communication.shared_memory import Host, aligned


class SharedSum(Compressor):
    """Sums a gradient over the ranks of this host, each a part of it; `link` counts what a rank reads of the others."""

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device, host: Host) -> None:
        super().__init__(name, shapes, link, device)
        self._host = host
        self._regions = [host.take(self.elements) for _ in range(host.count)]
        self.own = self._regions[host.number]  # where this rank writes its gradient, fp32 [elements]
        self.total = self._regions[0]  # where the sum lies; it is not written before all have used the sum
        length = aligned(-(-self.elements // host.count) * 4) // 4  # no two ranks write into one cache line
        self.part = slice(host.number * length, (host.number + 1) * length)  # the elements that this rank adds
        self._written, self._added, self._back = (host.new_event() for _ in range(3))

    def start(self, gradient: torch.Tensor) -> None:
        """Tell that this rank's gradient is written; copy one that lies elsewhere."""
        if gradient is not self.own:
            self.own.copy_(gradient)
        self.link.bytes += 2 * gradient.nbytes * (self._host.count - 1) // self._host.count
        self._host.tell(self._written)

    def proceed(self) -> None:
        """Wait until all gradients are written, and add this rank's part of them."""
        self._host.wait(self._written)
        total, *others = [region[self.part] for region in self._regions]
        for other in others:
            total += other
        self._host.tell(self._added)

    def finish(self) -> torch.Tensor:
        """Wait until all parts are added, and return the sum, which all ranks of the host share."""
        self._host.wait(self._added)
        return self.total

    def hand_back(self, total: torch.Tensor) -> torch.Tensor:
        """Return what the host's first rank gives as the total."""
        if self._host.number == 0:
            self.total.copy_(total)
            self._host.tell(self._back)
        else:
            self._host.wait(self._back)
        return self.total


class SharedWeights:
    """The weights of a bucket and their moments, which the ranks of a host keep once. Each rank updates its part."""

    def __init__(self, parameters: Parameters, gradient: SharedSum, host: Host, copies: bool) -> None:
        self.owned: dict[str, Owned] = {}  # the parameters, by name
        self.copies: Parameters = {}  # the parameters in bf16, by name, if there are copies
        self._gradients: Parameters = {}
        elements = sum(parameter.numel() for parameter in parameters.values())
        weights, means, squares = (host.take(elements) for _ in range(3))
        self._weights, self._part = weights, gradient.part
        self._copy = host.take(elements, torch.bfloat16) if copies else None
        start = 0  # the gradients of the bucket have the same order; it may hold more behind them
        for name, parameter in parameters.items():
            end = start + parameter.numel()
            values = weights[start:end]
            values.copy_(parameter.detach().reshape(-1))
            parameter.data = values.view_as(parameter)
            if self._copy is not None:
                self.copies[name] = self._copy[start:end].view_as(parameter)
            first, last = (min(max(edge, start), end) for edge in (gradient.part.start, gradient.part.stop))
            mean, square = means[start:end].view_as(parameter), squares[start:end].view_as(parameter)
            self.owned[name] = Owned(weights[first:last], mean, square, slice(first - start, last - start))
            self._gradients[name] = gradient.total[first:last]
            start = end
        self.round_all()

    def receive(self) -> None:
        """Give the pieces of the parameters their gradients, once these are summed."""
        for name, one in self.owned.items():
            one.piece.grad = self._gradients[name]

    def round_own(self) -> None:
        """Round the copies of this rank's part of the weights, which it has updated."""
        if self._copy is not None:
            self._copy[self._part].copy_(self._weights[self._part])

    def round_all(self) -> None:
        """Round all copies, because something other than the optimizer has changed the weights."""
        if self._copy is not None:
            self._copy.copy_(self._weights)


def room(elements: int, count: int, copies: bool) -> int:
    """Return the bytes of shared memory of a bucket: a gradient of each rank, weights, two moments, bf16 copies."""
    return (count + 3) * aligned(4 * elements) + copies * aligned(2 * elements)
