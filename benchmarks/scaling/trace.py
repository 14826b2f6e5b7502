"""What the engine's own exchange sends and computes on one of many ranks: it runs over a link that carries nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch

from benchmarks.scaling.compute import WORDS
from include.fields.ranks import Communication
from tasks.communication.all_reduce import Bucket
from tasks.communication.hosts import Hosts
from tasks.communication.link import Handle, Link
from tasks.communication.rows import HostRowsFirst, SparseRows

Collective = Literal["sum", "half sum", "gather", "exchange", "broadcast"]
CPU = torch.device("cpu")
STEPS = 4  # that are traced; the first is left out


@dataclass(frozen=True)
class Message:
    """A collective that a rank starts.

    Attributes:
        ticket: what waits for it.
        kind: of collective.
        bytes: that this rank puts in; of an exchange, those for the others.
        ranks: that take part.
        inside: whether they share a host.
    """

    ticket: Handle
    kind: Collective
    bytes: int
    ranks: int
    inside: bool


@dataclass(frozen=True)
class Compute:
    """Seconds of the main thread's processor time."""

    seconds: float


@dataclass(frozen=True)
class Wait:
    """Until the message with this ticket has arrived."""

    ticket: Handle


Event = Message | Compute | Wait
Phases = tuple[list[Event], list[Event], list[Event]]  # start, proceed and finish of a compressor


class Recorder:
    """The events of this thread, with its processor time between them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tickets = 0
        self._since = time.thread_time()

    def note(self, *events: Event) -> None:
        """Note what was computed up to here, then these events."""
        self.events += [Compute(time.thread_time() - self._since), *events]
        self._since = time.thread_time()

    def resume(self) -> None:
        """Leave out what was computed since the last note."""
        self._since = time.thread_time()

    def phase(self, work: Callable[[], object]) -> list[Event]:
        """Return the events of the work."""
        self.events = []
        self.resume()
        work()
        self.note()
        return self.events


class SilentLink(Link):
    """A link to ranks that all send what this one, their first, sends. Nothing travels."""

    def __init__(self, ranks: int, recorder: Recorder, inside: bool = False) -> None:
        super().__init__()
        self._count_of_ranks, self._recorder, self._inside = ranks, recorder, inside
        self._results: dict[Handle, torch.Tensor] = {}
        self._shards: dict[str, list[int]] = {}  # lengths, by the name of the exchange that has distributed them

    @property
    def size(self) -> int:
        return self._count_of_ranks

    @property
    def rank(self) -> int:
        return 0

    def all_reduce(self, tensor: torch.Tensor, name: str) -> Handle:
        return self._send("half sum" if tensor.dtype == torch.half else "sum", tensor.nbytes, lambda: tensor)

    def all_gather(self, tensor: torch.Tensor, name: str) -> Handle:
        others = 0 if name.endswith(".back") else len(tensor)  # only the leader of a host has rows for it
        lengths = self._shards.get(name.removesuffix(".sum"), [len(tensor), *[others] * (self.size - 1)])
        return self._send("gather", tensor.nbytes, lambda: torch.cat([tensor[:length] for length in lengths]))

    def all_to_all(self, parts: Sequence[torch.Tensor], name: str) -> Handle:
        others = sum(part.nbytes for part in parts[1:])
        self._shards[name] = [len(part) for part in parts]
        return self._send("exchange", others, lambda: torch.cat([parts[0]] * (self.size - 1)))

    def broadcast(self, tensor: torch.Tensor, root: int, name: str) -> Handle:
        return self._send("broadcast", tensor.nbytes, lambda: tensor)

    def wait(self, handle: Handle) -> torch.Tensor:
        self._recorder.note(Wait(handle))
        return self._results.pop(handle)

    def _send(self, kind: Collective, count: int, result: Callable[[], torch.Tensor]) -> Handle:
        self._recorder.tickets += 1
        ticket = self._recorder.tickets
        self._recorder.note(Message(ticket, kind, count, self.size, self._inside))
        self._results[ticket] = result()
        self._recorder.resume()
        return ticket


class SilentHosts(Hosts):
    """Hosts of equally many ranks, seen by the leader of the first."""

    def __init__(self, count: int, ranks: int, recorder: Recorder) -> None:
        self.count, self.number, self.first, self.is_leader = count, 0, 0, True
        self.inside = SilentLink(ranks, recorder, inside=True)


@dataclass(frozen=True)
class Layout:
    """Who takes part.

    Attributes:
        compression: as communication.compression names it.
        hosts: their number.
        per_host: ranks on each; 1: a ring of all ranks, more: hierarchical.
    """

    compression: str
    hosts: int
    per_host: int = 1

    @property
    def ranks(self) -> int:
        """Of all hosts."""
        return self.hosts * self.per_host

    @property
    def label(self) -> str:
        """How tables call it, without the number of ranks."""
        kind = "ring" if self.per_host == 1 else f"hierarchical, hosts of {self.per_host}"
        return kind if self.compression == "none" else f"{kind}, {self.compression}"

    @property
    def settings(self) -> Communication:
        """The section of an experiment; compression starts at once."""
        strategy = "all-reduce" if self.per_host == 1 else "hierarchical"
        return Communication.model_validate(
            {"strategy": strategy, "compression": self.compression, "compression_start": 0}
        )


@cache
def trace_bucket(shapes: tuple[tuple[int, ...], ...], layout: Layout, compressed: bool) -> Phases:
    """Return what a bucket of parameters of these shapes does in a step; times are medians."""
    recorder = Recorder()
    link, hosts = SilentLink(layout.hosts, recorder), _hosts(layout, recorder)
    torch.manual_seed(0)
    parameters = [torch.zeros(shape) for shape in shapes]
    bucket = Bucket("bucket", parameters, link, layout.settings, hosts)
    bucket.choose(compressed)

    def fill() -> None:
        for parameter in parameters:
            bucket.gradients.add(parameter, 1.0)

    def once() -> Phases:
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape)
        recorder.tickets = 0
        start = recorder.phase(fill)
        bucket.gradients.complete(1.0)
        return start, recorder.phase(bucket.compressor.proceed), recorder.phase(bucket.receive)

    return _medians([once() for _ in range(STEPS)][1:])


@cache
def trace_rows(shape: tuple[int, int], layout: Layout) -> Phases:
    """Return what word embeddings of this shape do in a step."""
    recorder = Recorder()
    link, hosts = SilentLink(layout.hosts, recorder), _hosts(layout, recorder)
    rows = HostRowsFirst("rows", torch.Size(shape), hosts, link, CPU) if hosts else None
    exchanged = rows or SparseRows("rows", torch.Size(shape), link, CPU)
    gradient = rows_gradient(shape, layout.per_host * WORDS)  # the ranks of a host have other words each

    def once() -> Phases:
        recorder.tickets = 0
        start = recorder.phase(lambda: exchanged.start(gradient))
        return start, recorder.phase(exchanged.proceed), recorder.phase(exchanged.finish)

    return _medians([once() for _ in range(STEPS)][1:])


def rows_gradient(shape: Sequence[int], words: int = WORDS, seed: int = 0) -> torch.Tensor:
    """Return a gradient of word embeddings of this shape, in which so many rows are not zero."""
    random = torch.Generator().manual_seed(seed)
    numbers = torch.randperm(shape[0], generator=random)[:words]
    values = torch.randn(len(numbers), shape[1], generator=random)
    return torch.sparse_coo_tensor(numbers.unsqueeze(0), values, tuple(shape), check_invariants=False)


def _hosts(layout: Layout, recorder: Recorder) -> Hosts | None:
    return SilentHosts(layout.hosts, layout.per_host, recorder) if layout.per_host > 1 else None


def _medians(runs: Sequence[Phases]) -> Phases:
    start, proceed, finish = (
        [_median(events) for events in zip(*phase, strict=True)] for phase in zip(*runs, strict=True)
    )
    return start, proceed, finish


def _median(events: tuple[Event, ...]) -> Event:
    first = events[0]
    if isinstance(first, Compute):
        return replace(first, seconds=statistics.median(e.seconds for e in events if isinstance(e, Compute)))
    return first
