"""How long collectives take: timed between two ranks, and a model that is fitted to these times alone.

A collective takes `latency + overhead * 8 * (wire bytes - burst) / rate + cost * wire bytes`: the overhead is that of
headers, the burst is what a limited link lets through at once, and the cost is the time of Gloo and the kernel.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import horovod.torch as hvd
import numpy as np
import torch
from scipy.optimize import nnls

from benchmarks.links import BURST, INTERFACE, Host, limit
from benchmarks.scaling.fleet import on_hosts
from benchmarks.scaling.trace import Message
from tasks.communication.link import Link

GIGABIT = 10**9
RATES = (GIGABIT, GIGABIT // 4)  # bit/s
SIZES = (2**12, 2**16, 2**18, 2**20, 2**22, 2**24, 43 * 10**6)
REPEATS = 5
#: Horovod's ranks agree on what all of them have by two sums of a few bytes, which go around the ring twice each.
AGREEMENT_HOPS = 4
ECHOES = 500
#: With one message in each direction, two ranks share a connection, and Gloo may let one message wait for the other.
#: More ranks send to one neighbor and receive from another, so their gathers are those of one sender here.
KINDS = ("sum", "half sum", "gather", "gather of two", "exchange")
INSIDE = ("sum", "gather", "broadcast")

Samples = dict[str, list[tuple[float, int, float]]]  # by kind: seconds per bit of the link, bytes, seconds


@dataclass(frozen=True)
class Line:
    """What a kind of collective takes between two ranks.

    Attributes:
        latency: seconds of a message without bytes.
        overhead: bits on the wire for each bit.
        cost: seconds for each byte at any rate.
    """

    latency: float
    overhead: float
    cost: float

    def seconds(self, wire: float, rate: float, burst: int) -> float:
        """Return the time for so many bytes at so many bit/s, of which a burst takes none on the link."""
        return self.latency + self.overhead * 8 * max(0.0, wire - burst) / rate + self.cost * wire


@dataclass(frozen=True)
class Wire:
    """The model of a network.

    Attributes:
        across: by kind of collective, between hosts.
        inside: the same between ranks of one host.
        hop: seconds that one small message takes from host to host.
        burst: bytes of a collective that a limited link lets through at once; links that are only slow have none.
    """

    across: Mapping[str, Line]
    inside: Mapping[str, Line]
    hop: float
    burst: int = BURST

    def seconds(self, message: Message, rate: float) -> float:
        """Return the time of a collective over links of so many bit/s."""
        kind = "gather of two" if message.kind == "gather" and message.ranks == 2 else message.kind
        wire = traffic(message.kind, message.bytes, message.ranks)
        if message.inside:
            return self.inside[message.kind].seconds(wire, rate, self.burst)
        further = hops(message.kind, message.ranks) - hops(message.kind, 2) + AGREEMENT_HOPS * (message.ranks - 2)
        return further * self.hop + self.across[kind].seconds(wire, rate, self.burst)

    def latency(self, message: Message) -> float:
        """Return the part of `seconds` that no faster link shortens and no byte causes."""
        return self.seconds(Message(0, message.kind, 0, message.ranks, message.inside), GIGABIT)


def traffic(kind: str, count: int, ranks: int) -> float:
    """Return the bytes that a rank sends, if it puts so many into a collective."""
    shares = {"sum": 2 * (ranks - 1) / ranks, "half sum": 2 * (ranks - 1) / ranks, "gather": ranks - 1}
    return count * shares.get(kind, 1)


def hops(kind: str, ranks: int) -> int:
    """Return how many messages follow one another: a sum goes around the ring twice, an exchange is direct."""
    return {"sum": 2, "half sum": 2, "gather": 1}.get(kind, 0) * (ranks - 1) or 1


def time_across(hosts: Sequence[Host], sizes: Sequence[int], repeats: int) -> tuple[Samples, float]:
    """Time collectives between two hosts at each of RATES, and a small message from one to the other."""

    def work(host: Host) -> tuple[Samples, float]:
        found: Samples = {kind: [] for kind in KINDS}
        hop = _hop(host)
        for rate in RATES:
            limit(INTERFACE, rate, host)
            for kind in KINDS:
                for size in sizes:
                    found[kind] += [(1 / rate, size, seconds) for seconds in _timed(kind, size, repeats)]
        return found, hop

    (first, hop), (second, _) = on_hosts(hosts, work)
    return _slower(first, second), hop


def time_inside(host: Host, sizes: Sequence[int], repeats: int) -> Samples:
    """Time collectives between two ranks of one host."""

    def work(host: Host) -> Samples:
        return {
            kind: [(0.0, size, seconds) for size in sizes for seconds in _timed(kind, size, repeats)] for kind in INSIDE
        }

    first, second = on_hosts([host] * 2, work)
    return _slower(first, second)


def fit(samples: Samples) -> dict[str, Line]:
    """Fit a line to the medians of each kind, so that relative errors are smallest."""
    return {kind: _fit(rows) for kind, rows in samples.items()}


def resampled(samples: Samples, random: np.random.Generator) -> Samples:
    """Draw as many samples of each kind, rate and size as there are, with replacement."""
    drawn: Samples = {}
    for kind, rows in samples.items():
        drawn[kind] = []
        for (inverse, size), seconds in _grouped(rows).items():
            drawn[kind] += [(inverse, size, float(one)) for one in random.choice(seconds, len(seconds))]
    return drawn


def _fit(rows: Sequence[tuple[float, int, float]]) -> Line:
    points = [(inverse, size, statistics.median(seconds)) for (inverse, size), seconds in _grouped(rows).items()]
    inverses, sizes, medians = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    matrix = (
        np.stack([np.ones_like(sizes), 8 * np.maximum(0, sizes - BURST) * inverses, sizes], axis=1) / medians[:, None]
    )
    scale = matrix.max(axis=0) + 1e-300  # a link without a limit has no overhead
    solution, _ = nnls(matrix / scale, np.ones_like(sizes))
    return Line(*(float(value) for value in solution / scale))


def _grouped(rows: Sequence[tuple[float, int, float]]) -> dict[tuple[float, int], list[float]]:
    groups: defaultdict[tuple[float, int], list[float]] = defaultdict(list)
    for inverse, size, seconds in rows:
        groups[inverse, size].append(seconds)
    return dict(groups)


def _timed(kind: str, size: int, repeats: int) -> list[float]:
    """Return what the collective took on this rank, again and again; the first, which connects, does not count."""
    link, taken = Link(), []
    for _ in range(repeats + 1):
        tensor = torch.ones(size // 2, dtype=torch.half) if kind == "half sum" else torch.ones(size // 4)
        nothing = tensor[:0]
        own = tensor if hvd.rank() == 0 or kind == "gather of two" else nothing
        hvd.barrier()
        began = time.perf_counter()
        if kind.endswith("sum"):
            handle = link.all_reduce(tensor, kind)
        elif kind == "exchange":
            handle = link.all_to_all([nothing, own] if hvd.rank() == 0 else [nothing, nothing], kind)
        elif kind == "broadcast":
            handle = link.broadcast(tensor, 0, kind)
        else:
            handle = link.all_gather(own, kind)
        link.wait(handle)
        taken.append(time.perf_counter() - began)
    return taken[1:]


def _hop(host: Host) -> float:
    """Return half the median time that a byte takes to the other rank and back, in seconds."""
    with socket.create_server((host.address, 0)) as server:
        addresses = hvd.allgather_object(server.getsockname(), name="addresses")
        first = hvd.rank() == 0
        with server.accept()[0] if first else socket.create_connection(addresses[0]) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            taken = [_echo(connection, first) for _ in range(ECHOES)]
    return statistics.median(taken) / 2


def _echo(connection: socket.socket, first: bool) -> float:
    began = time.perf_counter()
    if first:
        connection.sendall(b"?")
    connection.recv(1)
    if not first:
        connection.sendall(b"!")
    return time.perf_counter() - began


def _slower(first: Samples, second: Samples) -> Samples:
    """Return the samples of the rank for which each collective took longer: a sender is done before the receiver."""
    return {
        kind: [max(pair, key=lambda row: row[2]) for pair in zip(first[kind], second[kind], strict=True)]
        for kind in first
    }
