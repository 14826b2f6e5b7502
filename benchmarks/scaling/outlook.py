"""What the model says where nothing was measured: more nodes, other links, and where compression stops paying."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.scaling.calibrate import Calibration
from benchmarks.scaling.model import Interval, Step
from benchmarks.scaling.trace import Layout
from benchmarks.scaling.wire import GIGABIT, Wire

NODES = (8, 16, 64, 256, 1024)
PRESETS = (1, 10, 25, 100)  # Gbit/s
LINKED = 8  # nodes whose break-even is looked for
COMPRESSIONS = ("fp16", "int8", "int4", "onebit", "topk", "powersgd")
SLOWEST, FASTEST = 1e6, 1e13  # bit/s
DRAWN = 81  # of the fits, for the intervals of break-even links


@dataclass(frozen=True)
class Extrapolated:
    """A layout that was not measured.

    Attributes:
        size: of the encoder.
        layout: of ranks; each host is a node.
        gigabits: per second, of the nodes' links.
        efficiency: the time of a step of one rank alone, divided by that of a step of all.
        latency: the share of the step that is latency, if none of it is hidden.
    """

    size: str
    layout: Layout
    gigabits: int
    efficiency: Interval
    latency: float


@dataclass(frozen=True)
class Break:
    """The link, in bit/s, below which a compression makes the steps of eight nodes shorter.

    It is 0 where no link is slow enough, and infinite where none is too fast.
    """

    size: str
    compression: str
    rate: Interval


def extrapolate(calibration: Calibration, size: str, layouts: Sequence[Layout]) -> Iterator[Extrapolated]:
    """Predict the efficiency of layouts at all presets."""
    wires, profile = _unlimited(calibration), calibration.profiles[size]
    for layout in layouts:
        step = Step.of(profile, layout)
        for preset in PRESETS:
            seconds = Interval.of(step, wires, preset * GIGABIT)
            alone = profile.step
            efficiency = Interval(alone / seconds.fitted, alone / seconds.high, alone / seconds.low)
            latency = sum(wires[0].latency(message) for message in step.messages) / seconds.fitted
            yield Extrapolated(size, layout, preset, efficiency, latency)


def break_even(calibration: Calibration, size: str, compression: str) -> Break:
    """Find the link at which a compression takes as long as none, by the fitted model and by those of drawn samples."""
    profile = calibration.profiles[size]
    plain, packed = (Step.of(profile, Layout(name, LINKED)) for name in ("none", compression))
    fitted, *drawn = (_crossing(plain, packed, wire) for wire in _unlimited(calibration)[:DRAWN])
    low, high = sorted(drawn)[len(drawn) // 40], sorted(drawn)[-1 - len(drawn) // 40]
    return Break(size, compression, Interval(fitted, min(fitted, low), max(fitted, high)))


def _unlimited(calibration: Calibration) -> list[Wire]:
    """Return the model's fits for real links, which let nothing through at once."""
    return [replace(wire, burst=0) for wire in calibration.wires]


def _crossing(plain: Step, packed: Step, wire: Wire) -> float:
    low, high = SLOWEST, FASTEST
    if packed.seconds(wire, low) >= plain.seconds(wire, low):
        return 0.0
    if packed.seconds(wire, high) < plain.seconds(wire, high):
        return math.inf
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        if packed.seconds(wire, middle) < plain.seconds(wire, middle):
            low = middle
        else:
            high = middle
    return low
