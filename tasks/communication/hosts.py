"""Sums inside each host, over Gloo or in shared memory, before those across the hosts, which alone are compressed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tasks.communication import ranks
from tasks.communication.compression.base import Compressor, Uncompressed
from tasks.communication.exchange import Owned, Parameters
from tasks.communication.link import Link, process_set
from tasks.communication.shared_memory import Host, aligned
from tasks.communication.state import State


class Hosts:
    """Which ranks share a host. Horovod must have been started with dynamic process sets."""

    def __init__(self, by_host: Sequence[int]) -> None:
        hosts, rank = ranks.split_by_host(by_host), ranks.rank()
        sets = [process_set(host) for host in hosts]
        firsts = [host.start for host in hosts]
        self.count, self.number = len(hosts), next(n for n, host in enumerate(hosts) if rank in host)
        self.inside = Link(sets[self.number])  # the fast link among this host's ranks
        self.across = process_set(firsts)  # the leaders of all hosts, which are the first rank of each
        self.first = firsts[self.number]
        self.is_leader = rank == self.first


class GlooInside(Uncompressed):
    """Sums inside the host by Horovod's all-reduce."""

    def __init__(self, name: str, shapes: Sequence[torch.Size], hosts: Hosts, device: torch.device) -> None:
        super().__init__(f"{name}.inside", shapes, hosts.inside, device)
        self._leader = hosts.first

    def hand_back(self, total: torch.Tensor) -> torch.Tensor:
        """Broadcast the leader's total."""
        return self.link.wait(self.link.broadcast(total, self._leader, f"{self.name}.back"))


class HostFirst(Compressor):
    """Sums inside the host in fp32, then over hosts.across with the compressor `across`."""

    def __init__(self, across: Compressor, inside: GlooInside | SharedSum, hosts: Hosts) -> None:
        super().__init__(across.name, across.shapes, across.link, across.device)
        self._across, self._inside, self._leads = across, inside, hosts.is_leader

    def start(self, gradient: torch.Tensor) -> None:
        """Start to sum inside the host."""
        self._inside.start(gradient)

    def proceed(self) -> None:
        """Start to sum across the hosts."""
        self._inside.proceed()
        self._total = self._inside.finish()
        if self._leads:
            self._across.start(self._total)

    def finish(self) -> torch.Tensor:
        """Wait for the sum, and hand it back inside the host."""
        if self._leads:
            self._across.proceed()
            self._total = self._across.finish()
        return self._inside.hand_back(self._total)

    def discard_step(self) -> None:
        """Restore the compressor's state."""
        self._across.discard_step()

    def state_dict(self) -> State:
        """Return the state of the compressor, which only changes on leaders."""
        return self._across.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Replace the state of the compressor."""
        self._across.load_state_dict(state)


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

    def __init__(self, parameters: Parameters, gradient: SharedSum, host: Host) -> None:
        self.owned: dict[str, Owned] = {}  # the parameters, by name
        self._gradients: Parameters = {}
        elements = sum(parameter.numel() for parameter in parameters.values())
        weights, means, squares = (host.take(elements) for _ in range(3))
        start = 0  # the gradients of the bucket have the same order; it may hold more behind them
        for name, parameter in parameters.items():
            end = start + parameter.numel()
            values = weights[start:end]
            values.copy_(parameter.detach().reshape(-1))
            parameter.data = values.view_as(parameter)
            first, last = (min(max(edge, start), end) for edge in (gradient.part.start, gradient.part.stop))
            mean, square = means[start:end].view_as(parameter), squares[start:end].view_as(parameter)
            self.owned[name] = Owned(weights[first:last], mean, square, slice(first - start, last - start))
            self._gradients[name] = gradient.total[first:last]
            start = end

    def receive(self) -> None:
        """Give the pieces of the parameters their gradients, once these are summed."""
        for name, one in self.owned.items():
            one.piece.grad = self._gradients[name]


def room(elements: int, count: int) -> int:
    """Return the bytes of shared memory of a bucket: a gradient of each rank, weights, and two moments."""
    return (count + 3) * aligned(4 * elements)
