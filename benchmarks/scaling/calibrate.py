"""What the predictions are made of, all of it measured on one rank or two."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.links import joined_hosts
from benchmarks.results import machine
from benchmarks.scaling.compute import Profile, profile
from benchmarks.scaling.fleet import alone
from benchmarks.scaling.wire import Samples, Wire, fit, resampled, time_across, time_inside

DRAWS = 200  # of the samples, for intervals


@dataclass(frozen=True)
class Calibration:
    """The samples.

    Attributes:
        profiles: a step of each size of encoder.
        across: collectives between two hosts.
        inside: collectives between two ranks of one host.
        hop: seconds of a small message from one host to the other.
        machine: on which all this was measured.
        load: the load average of a minute when it began and when it ended; a quiet machine begins near 0.
        time: when it ended, in seconds since 1970.
    """

    profiles: dict[str, Profile]
    across: Samples
    inside: Samples
    hop: float
    machine: str
    load: list[float]
    time: float

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """Return what `dataclasses.asdict` made of a calibration."""
        return cls(**{**values, "profiles": {size: Profile(**one) for size, one in values["profiles"].items()}})

    @cached_property
    def wires(self) -> list[Wire]:
        """Return the model that is fitted to all samples, then those that are fitted to samples drawn from them."""
        random = np.random.default_rng(0)
        drawn = [(resampled(self.across, random), resampled(self.inside, random)) for _ in range(DRAWS)]
        return [Wire(fit(across), fit(inside), self.hop) for across, inside in [(self.across, self.inside), *drawn]]


def calibrate(sizes: Sequence[str], messages: Sequence[int], repeats: int, scratch: Path) -> Calibration:
    """Measure the steps of encoders of these sizes, and collectives of so many bytes between two ranks."""
    before = os.getloadavg()[0]
    profiles = {size: alone(partial(profile, size, scratch, repeats)) for size in sizes}
    with joined_hosts(2) as hosts:
        across, hop = time_across(hosts, messages, repeats)
        inside = time_inside(hosts[0], messages, repeats)
    return Calibration(profiles, across, inside, hop, machine(), [before, os.getloadavg()[0]], time.time())
