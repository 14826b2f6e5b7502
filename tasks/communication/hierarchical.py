"""Hierarchical sums: inside each host, then compressed across the hosts between their leaders, then back inside."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tasks.communication import ranks
from tasks.communication.compression.base import Compressor, Uncompressed
from tasks.communication.link import Link, process_set
from tasks.communication.shared_sum import SharedSum
from tasks.communication.state import State


class Hosts:
    """Which ranks share a host. Horovod must have been started with dynamic process sets."""

    def __init__(self, by_host: Sequence[int]) -> None:
        """Group ranks, given the number of ranks on each host."""
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
