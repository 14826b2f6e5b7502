"""Steps of many ranks in network namespaces: the engine's own exchange really sends, and sleep stands for compute.

Several ranks share a core. Where they do, everything that is not theirs to use up, which is links, sleep and Horovod's
clock, is slowed down by the number of ranks per core, so that processor time, of which each rank gets that much less,
keeps its share of a step.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch

from benchmarks.links import INTERFACE, Host, joined_hosts, limit
from benchmarks.scaling.compute import Profile, build
from benchmarks.scaling.fleet import on_hosts
from benchmarks.scaling.trace import Layout, rows_gradient
from tasks.communication.all_reduce import AllReduce
from tasks.communication.exchange import by_kind, group_by_size
from tasks.communication.hosts import Hosts
from tasks.encoder.models import EncoderWithHead
from tasks.launching.tuning import keep_freed_memory

CORES = len(os.sched_getaffinity(0))
WARMUP = 2
NAP = 0.002  # seconds; what is shorter is slept later, because a sleep takes a tenth of a millisecond too long


@dataclass(frozen=True)
class Measured:
    """Steps of one layout.

    Attributes:
        seconds: that each step took on rank 0, divided by the dilation.
        received: bytes that the engine counted in a step on rank 0.
        dilation: the factor by which time was slowed down.
    """

    seconds: list[float]
    received: int
    dilation: float

    @property
    def median(self) -> float:
        """Of the steps."""
        return statistics.median(self.seconds)


def measure(size: str, profile: Profile, layout: Layout, rate: int, steps: int) -> Measured:
    """Time steps of an encoder of this size over links that stand for so many bit/s.

    Raises:
        RuntimeError: if a rank failed or was killed.
    """
    dilation = max(1.0, layout.ranks / CORES)
    model = build(size)

    def work(host: Host) -> Measured:
        limit(INTERFACE, round(rate / dilation), host)
        rehearsal = Rehearsal(model, profile, layout, dilation)
        for step in range(WARMUP):
            rehearsal.step(step + 1)
        before = rehearsal.received
        seconds = [rehearsal.step(step + 1 + WARMUP) / dilation for step in range(steps)]
        return Measured(seconds, (rehearsal.received - before) // steps, dilation)

    with joined_hosts(layout.hosts) as hosts:
        return on_hosts([host for host in hosts for _ in range(layout.per_host)], work, dilation)[0]


class Rehearsal:
    """A rank that sleeps instead of computing, and exchanges random gradients through the engine's AllReduce."""

    def __init__(self, model: EncoderWithHead, profile: Profile, layout: Layout, dilation: float) -> None:
        keep_freed_memory()
        torch.manual_seed(hvd.rank())
        self._profile, self._dilation, self._owed = profile, dilation, 0.0
        hosts = Hosts([layout.per_host] * layout.hosts) if layout.per_host > 1 else None
        self._exchange = AllReduce(model, layout.settings, first_compressed=1, hosts=hosts)
        self._late = _late_gradients(model, profile)

    @property
    def received(self) -> int:
        """Bytes so far, as the engine counts them."""
        return sum(self._exchange.bytes_received().values())

    def step(self, number: int) -> float:
        """Return the seconds that a step took."""
        began = time.perf_counter()
        self._exchange.begin_step(number, loss_scale=1.0, stop=False)
        self._exchange.sync_next_backward()
        loss = torch.zeros(1)
        for pause, parameter, gradient in reversed(self._late):  # the backward pass begins at the end
            loss = _Late.apply(loss, parameter, gradient, partial(self._compute, pause))  # type: ignore[no-untyped-call]
        loss.sum().backward()  # type: ignore[no-untyped-call]
        self._exchange.synchronize_gradients()
        self._compute(self._profile.step - self._profile.backward)
        for parameter in self._exchange.parameters.values():
            parameter.grad = None
        return time.perf_counter() - began

    def _compute(self, seconds: float) -> None:
        """Sleep so long, on average."""
        self._owed += seconds * self._dilation
        if self._owed > NAP:
            began = time.perf_counter()
            time.sleep(self._owed)
            self._owed -= time.perf_counter() - began


class _Late(torch.autograd.Function):
    """Gives a parameter a gradient that the backward pass has to wait for."""

    @staticmethod
    def forward(
        ctx: Any, loss: torch.Tensor, parameter: torch.Tensor, gradient: torch.Tensor, wait: Callable[[], None]
    ) -> torch.Tensor:
        ctx.gradient, ctx.wait = gradient, wait
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        ctx.wait()
        return upstream, ctx.gradient, None, None


def _late_gradients(model: EncoderWithHead, profile: Profile) -> list[tuple[float, torch.Tensor, torch.Tensor]]:
    """Return the parameters in the order of their gradients, which follow each other after so many seconds."""
    kinds = by_kind(model)
    groups = group_by_size(kinds["matrices"].values())
    assert [[list(p.shape) for p in group] for group in groups] == profile.buckets
    (words,) = kinds["embeddings"].values()
    rest = list(kinds["rest"].values())
    found, done = [], 0.0
    moments = [*zip(profile.ready, groups, strict=True), (profile.rows_ready, [words]), (profile.backward, rest)]
    for ready, parameters in sorted(moments, key=lambda moment: moment[0]):
        for parameter in parameters:
            found.append((ready - done, parameter, _gradient(parameter, words)))
            done = ready
    return found


def _gradient(parameter: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return rows_gradient(parameter.shape, seed=hvd.rank()) if parameter is words else torch.randn_like(parameter)
