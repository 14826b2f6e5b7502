"""Hierarchical sums: inside each host, then across the hosts between their leaders, then a broadcast inside each host.

Only the second part uses the slow link, and only that part is compressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import horovod.torch as hvd
import torch

from tasks.communication.compression.base import Compressor
from tasks.communication.compression.none import Uncompressed
from tasks.communication.compression.sparse_rows import SparseRows
from tasks.communication.layout import Layout, flat
from tasks.communication.link import Link
from tasks.communication.ranks import split_by_host
from tasks.communication.shared_memory import Host
from tasks.communication.shared_rows import SharedRows
from tasks.communication.state import State


class Hosts:
    """Which ranks share a host. Horovod must have been started with dynamic process sets.

    Attributes:
        inside: the fast link among this host's ranks.
        across: the leaders of all hosts, which are the first rank of each.
        count: the number of hosts.
        number: this host's number, counted from 0.
        first: the rank that leads this host.
        is_leader: whether this rank leads its host.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        """Group ranks, given the number of ranks on each host (see tasks.communication.ranks)."""
        hosts, layout = split_by_host(ranks), flat()
        sets = [_process_set(list(host), layout) for host in hosts]
        firsts = [host.start for host in hosts]
        self.count, self.number = len(hosts), next(n for n, host in enumerate(hosts) if layout.rank in host)
        self.inside = Link(sets[self.number])
        self.across = _process_set(firsts, layout)
        self.first = firsts[self.number]
        self.is_leader = layout.rank == self.first


def _process_set(ranks: list[int], layout: Layout) -> hvd.ProcessSet:
    """Return a process set. Horovod refuses a second set of the same ranks, and already has one of all ranks."""
    return hvd.global_process_set if len(ranks) == layout.world else hvd.add_process_set(ranks)


class Inside(Protocol):
    """What sums a bucket inside the host, and gives the host's ranks what its leader has received from other hosts."""

    def start(self, gradient: torch.Tensor) -> None:
        """Start to sum this rank's gradient, fp32 [elements]."""

    def proceed(self) -> None:
        """Continue with what depends on the other ranks' gradients."""

    def finish(self) -> torch.Tensor:
        """Return the host's sum, fp32 [elements]."""

    def hand_back(self, total: torch.Tensor) -> torch.Tensor:
        """Return the leader's `total` on all ranks of the host."""


class GlooInside(Uncompressed):
    """Sums inside the host by Horovod's all-reduce."""

    def __init__(self, name: str, shapes: Sequence[torch.Size], hosts: Hosts, device: torch.device) -> None:
        super().__init__(f"{name}.inside", shapes, hosts.inside, device)
        self._leader = hosts.first

    def hand_back(self, total: torch.Tensor) -> torch.Tensor:
        """Broadcast the leader's total."""
        return self.link.wait(self.link.broadcast(total, self._leader, f"{self.name}.back"))


class HostFirst(Compressor):
    """Sums inside the host in fp32, then across the hosts with a compressor of any kind."""

    def __init__(self, across: Compressor, inside: Inside, hosts: Hosts) -> None:
        """Use the compressor `across`, which sums over hosts.across."""
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


class HostRowsFirst(SparseRows):
    """Sums a row-sparse gradient inside each host, then across the hosts, then sends its rows inside each host."""

    def __init__(
        self,
        name: str,
        shape: torch.Size,
        hosts: Hosts,
        across: Link,
        device: torch.device,
        host: Host | None = None,
    ) -> None:
        """Sum rows of a parameter of this shape; `across` is the link of hosts.across.

        The ranks of `host` gather their rows in its memory; None: they use Gloo.
        """
        super().__init__(name, shape, across, device)
        inside = f"{name}.inside", shape, hosts.inside, device
        self._inside = SharedRows(*inside, host) if host else SparseRows(*inside)
        self._speaks = hosts.is_leader

    def start(self, gradient: torch.Tensor) -> None:
        """Start to sum inside the host."""
        self._inside.start(gradient)

    def proceed(self) -> None:
        """Start to gather the hosts' rows."""
        total = self._inside.finish()
        if self._speaks:
            super().start(total)

    def finish(self) -> torch.Tensor:
        """Wait for the sum, and gather its rows inside the host, where only the leader has any."""
        if self._speaks:
            self._inside.start(super().finish())
        return self._inside.finish()
