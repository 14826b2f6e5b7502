"""Sums over hosts in three moves: inside a host, across the hosts between one rank of each, and back inside the host.

Only the second one uses the slow link, and only it is compressed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

import horovod.torch as hvd
import torch

from tasks.communication.compression.base import Compressor
from tasks.communication.compression.none import Uncompressed
from tasks.communication.compression.sparse_rows import SparseRows
from tasks.communication.link import Handle, Link
from tasks.communication.state import State


class Hosts:
    """Which ranks share a host. Horovod must have been started with dynamic process sets.

    Attributes:
        inside: the fast link, among this host's ranks.
        across: the ranks that speak for the hosts, which are their first ones.
        count: how many hosts there are.
        number: this host's, counted from 0.
        first: the rank that is_leader for this host.
        is_leader: whether this rank is the one.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        """ranks: how many ranks each host has, as ranks_by_host gives them."""
        ends = [0, *accumulate(ranks)]
        sets = [_process_set(list(range(first, end))) for first, end in pairwise(ends)]
        firsts = ends[:-1]
        self.count, self.number = len(firsts), bisect_right(firsts, hvd.rank()) - 1
        self.inside = Link(sets[self.number])
        self.across = _process_set(firsts)
        self.first = firsts[self.number]
        self.is_leader = hvd.rank() == self.first


def ranks_by_host() -> list[int]:
    """How many ranks each host has. Horovod numbers the ranks host by host."""
    local = hvd.allgather(torch.tensor([hvd.local_rank()]), name="local_rank").tolist()
    firsts = [rank for rank, number in enumerate(local) if number == 0]
    return [end - first for first, end in pairwise([*firsts, len(local)])]


def _process_set(ranks: list[int]) -> hvd.ProcessSet:
    """Horovod refuses a second set of the same ranks, and has one of all."""
    return hvd.global_process_set if len(ranks) == hvd.size() else hvd.add_process_set(ranks)


class HostFirst(Compressor):
    """Sums inside the host in fp32, then across the hosts with a compressor of any kind."""

    def __init__(self, across: Compressor, hosts: Hosts) -> None:
        """across: the compressor that sums over hosts.across."""
        super().__init__(across.name, across.shapes, across.link, across.device)
        self._across, self._hosts = across, hosts
        self._inside = Uncompressed(f"{self.name}.inside", self.shapes, hosts.inside, self.device)

    def start(self, gradient: torch.Tensor) -> None:
        """Sum inside the host."""
        self._inside.start(gradient)

    def proceed(self) -> None:
        """The host's sum leaves for the other hosts."""
        self._total = self._inside.finish()
        if self._hosts.is_leader:
            self._across.start(self._total)

    def finish(self) -> torch.Tensor:
        """Hand the sum out inside the host."""
        if self._hosts.is_leader:
            self._across.proceed()
            self._total = self._across.finish()
        handle: Handle = self._hosts.inside.broadcast(self._total, self._hosts.first, f"{self.name}.back")
        return self._hosts.inside.wait(handle)

    def discard_step(self) -> None:
        """As the compressor does."""
        self._across.discard_step()

    def state_dict(self) -> State:
        """The compressor's. That of a rank which does not speak never changes."""
        return self._across.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take over what state gave."""
        self._across.load_state_dict(state)


class HostRowsFirst(SparseRows):
    """Sums a row-sparse gradient inside the host, then across the hosts, and hands its rows out inside the host."""

    def __init__(self, name: str, shape: torch.Size, hosts: Hosts, across: Link, device: torch.device) -> None:
        """across: the link of hosts.across."""
        super().__init__(name, shape, across, device)
        self._speaks = hosts.is_leader
        self._inside = SparseRows(f"{name}.inside", shape, hosts.inside, device)
        self._back = SparseRows(f"{name}.back", shape, hosts.inside, device)

    def start(self, gradient: torch.Tensor) -> None:
        """Sum inside the host."""
        self._inside.start(gradient)

    def proceed(self) -> None:
        """The host's rows leave for the other hosts."""
        total = self._inside.finish()
        if self._speaks:
            super().start(total)

    def finish(self) -> torch.Tensor:
        """Hand the sum's rows out inside the host: only the rank that is_leader gives any."""
        if self._speaks:
            self._back.start(super().finish())
        return self._back.finish()
