"""The time of a step of many ranks: the engine's own events, replayed against a clock and a model of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from benchmarks.scaling.compute import Profile
from benchmarks.scaling.trace import Compute, Event, Layout, Message, Phases, trace_bucket, trace_rows
from benchmarks.scaling.wire import Wire


@dataclass(frozen=True)
class Step:
    """What one rank does in a step, bucket by bucket.

    Attributes:
        profile: what it computes besides.
        matrices: the buckets of matrices, in the order in which they start.
        rows: the word embeddings.
        rest: all other parameters.
    """

    profile: Profile
    matrices: Sequence[Phases]
    rows: Phases
    rest: Phases

    @classmethod
    def of(cls, profile: Profile, layout: Layout) -> Self:
        """Trace a step. This takes as long as the compressors take for it, some times over."""
        shapes = [tuple(tuple(shape) for shape in bucket) for bucket in profile.buckets]
        return cls(
            profile,
            [trace_bucket(bucket, layout, compressed=True) for bucket in shapes],
            trace_rows((profile.rows[0], profile.rows[1]), layout),
            trace_bucket(((profile.rest,),), layout, compressed=False),
        )

    @property
    def messages(self) -> list[Message]:
        """All that the rank sends."""
        phases = (*self.matrices, self.rows, self.rest)
        return [event for one in phases for phase in one for event in phase if isinstance(event, Message)]

    def seconds(self, wire: Wire, rate: float) -> float:
        """Return the time of the step over links of so many bit/s.

        The order is that of AllReduce: buckets start when their last gradient is there, the rest after the backward
        pass; then all proceed, and all finish.
        """
        clock = _Clock(wire, rate)
        starts = [*zip(self.profile.ready, self.matrices, strict=True), (self.profile.rows_ready, self.rows)]
        done = 0.0
        for ready, phases in sorted(starts, key=lambda start: start[0]):
            clock.now += ready - done
            done = ready
            clock.replay(phases, 0)
        clock.now += self.profile.backward - done
        clock.replay(self.rest, 0)
        for number in (1, 2):
            for phases in (*self.matrices, self.rest, self.rows):
                clock.replay(phases, number)
        return clock.now + self.profile.step - self.profile.backward


@dataclass(frozen=True)
class Interval:
    """A prediction: by the fit to all samples, and at 95 % over fits to samples drawn from them."""

    fitted: float
    low: float
    high: float

    @classmethod
    def of(cls, step: Step, wires: Sequence[Wire], rate: float) -> Self:
        """Predict the seconds of a step at so many bit/s; the first of the wires is fitted to all samples."""
        fitted, *drawn = (step.seconds(wire, rate) for wire in wires)
        low, high = np.percentile(drawn, (2.5, 97.5))
        return cls(fitted, min(fitted, float(low)), max(fitted, float(high)))


class _Clock:
    """When a rank's main thread and its Horovod, which does one thing after the other, are done with what they do."""

    def __init__(self, wire: Wire, rate: float) -> None:
        self.now = self._idle = 0.0
        self._wire, self._rate = wire, rate
        self._arrivals: dict[tuple[int, int], float] = {}

    def replay(self, phases: Phases, number: int) -> None:
        for event in phases[number]:
            self._replay(event, id(phases))

    def _replay(self, event: Event, sender: int) -> None:
        if isinstance(event, Compute):
            self.now += event.seconds
        elif isinstance(event, Message):
            self._idle = max(self.now, self._idle) + self._wire.seconds(event, self._rate)
            self._arrivals[sender, event.ticket] = self._idle
        else:
            self.now = max(self.now, self._arrivals[sender, event.ticket])
