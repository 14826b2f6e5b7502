"""How much of the exchange backward hides: `.venv/tasks/bin/python -m benchmarks.overlap --figure overlap.png`.

Two ranks train with Horovod's timeline on: as the engine does it, and sending all gradients after the backward pass.
Norms, biases and head leave when backward has ended on the slower rank; what of the other buckets' transfer lies before
that is hidden. For each way, the figure shows the step whose last transfer ends in the median time after backward.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from matplotlib.figure import Figure

from benchmarks.links import LOCAL
from benchmarks.ranks import measure
from benchmarks.tables import spread, table
from benchmarks.timed_rank import Timing
from benchmarks.workload import BATCH, Workload, add_arguments, prepare
from tasks.launching import tuning

STEPS, WARMUP, QUICK_STEPS = 24, 4, 3
TRAINING = ("training.ranks=2", "communication.compression_start=1")  # or a bucket would have a second name
AFTER, DURING = "after backward", "during backward"
FIRST, LAST = "allreduce.matrices.0.plain", "allreduce.rest.plain"


@dataclass(frozen=True)
class Transfer:
    """A bucket's way over the wire, in seconds of the timeline: the last rank had it ready, it began, it ended."""

    bucket: str
    ready: float
    began: float
    ended: float

    def hidden(self, backward_ended: float) -> float:
        """Its share before that moment."""
        return min(1.0, max(0.0, (backward_ended - self.began) / (self.ended - self.began)))


@dataclass(frozen=True)
class Step:
    """The transfers of one step, one of every bucket, and whether they began during the backward pass or after it."""

    transfers: tuple[Transfer, ...]
    overlaps: bool

    @property
    def backward_ended(self) -> float:
        """When the last rank had computed all gradients: it then sent the last bucket, or the first one."""
        return next(t.ready for t in self.transfers if t.bucket == (LAST if self.overlaps else FIRST))

    @property
    def exposed(self) -> float:
        """Seconds of the exchange that backward does not hide."""
        return max(transfer.ended for transfer in self.transfers) - self.backward_ended


def main() -> None:
    """Train both ways in turn, read the timelines, print the tables and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="where to draw a step's timeline (PNG)")
    arguments = parser.parse_args()
    steps, rounds = (QUICK_STEPS, 1) if arguments.quick else (STEPS, arguments.rounds)
    found: dict[str, list[Step]] = {AFTER: [], DURING: []}
    with tempfile.TemporaryDirectory() as name:
        workload = prepare(arguments, Path(name)).with_rows(steps * BATCH)
        for _ in range(rounds):
            for way in found:
                found[way] += _train(workload, Path(name), steps, way)
    print(f"{describe(found[DURING])}\n\n{compare(found)}")
    if arguments.figure:
        draw(found, arguments.figure)


def _train(workload: Workload, scratch: Path, steps: int, way: str) -> list[Step]:
    """The transfers of each measured step."""
    file, job = scratch / "timeline.json", workload.job(scratch / "output", *TRAINING)
    timing = Timing(min(WARMUP, steps), steps, shared=False, overlaps=way == DURING)
    # As across hosts, Horovod looks for buckets every millisecond. It records no negotiation of those it remembers.
    with mock.patch.dict(os.environ, {"HOROVOD_TIMELINE": str(file), tuning.CYCLE: "1", tuning.CACHE: "0"}):
        measure(job, timing, 1, [LOCAL] * 2)
    found = by_step(transfers(json.loads(file.read_text(encoding="utf-8"))))
    return [Step(step, timing.overlaps) for step in found[timing.warmup :]]


def transfers(events: list[dict[str, Any]]) -> list[Transfer]:
    """Every bucket's transfers, in the order of their end, out of a timeline's events."""
    names: dict[int, str] = {}
    ready: dict[int, float] = {}
    open_phases: defaultdict[int, list[tuple[str, float]]] = defaultdict(list)
    found = []
    for event in events:
        bucket, moment = event["pid"], event.get("ts", 0) / 1e6
        if event["ph"] == "M" and "name" in event["args"]:
            names[bucket] = event["args"]["name"]
        elif event["ph"] == "X" and event["name"].isdigit():  # the number of a rank that is ready
            ready[bucket] = moment
        elif event["ph"] == "B":
            open_phases[bucket].append((event["name"], moment))
        elif event["ph"] == "E":
            phase, began = open_phases[bucket].pop()
            if phase.startswith(("GLOO_", "NCCL_", "MPI_")):
                found.append(Transfer(names[bucket], ready[bucket], began, moment))
    return found


def by_step(found: Sequence[Transfer]) -> list[tuple[Transfer, ...]]:
    """The gradients' transfers, step by step: each step has one of every bucket."""
    of_bucket: defaultdict[str, list[Transfer]] = defaultdict(list)
    for transfer in found:
        if transfer.bucket.startswith(("allreduce.matrices", "allreduce.rest", "allgather.rows")):
            of_bucket[transfer.bucket].append(transfer)
    return list(zip(*of_bucket.values(), strict=True))


def describe(steps: Sequence[Step]) -> str:
    """A table of the buckets: the hidden share of their transfer, and how long it took."""
    rows = []
    for bucket in zip(*(step.transfers for step in steps), strict=True):
        hidden = [100 * t.hidden(step.backward_ended) for t, step in zip(bucket, steps, strict=True)]
        rows.append([bucket[0].bucket, spread(hidden), spread([1000 * (t.ended - t.began) for t in bucket], 1)])
    return table(["bucket", "hidden by backward, %", "transfer, ms"], rows)


def compare(found: Mapping[str, Sequence[Step]]) -> str:
    """A table of both ways: how long after backward the last transfer ends."""
    rows = [(way, spread([1000 * step.exposed for step in steps], 1)) for way, steps in found.items()]
    return table(["gradients are sent", "from the end of backward to that of the last transfer, ms"], rows)


def draw(found: Mapping[str, Sequence[Step]], file: Path) -> None:
    """A bar for each bucket's transfer, and a line where backward ended."""
    figure = Figure(figsize=(9, len(found[DURING][0].transfers) + 1.6), layout="constrained")
    panels = figure.subplots(2, sharex=True)
    for axes, (way, steps) in zip(panels, found.items(), strict=True):
        middle = statistics.median_low([step.exposed for step in steps])
        step = next(step for step in steps if step.exposed == middle)
        for place, transfer in enumerate(sorted(step.transfers, key=lambda t: -t.ready)):
            moments = (transfer.ready, transfer.began, transfer.ended)
            ready, began, done = (1000 * (moment - step.backward_ended) for moment in moments)
            axes.broken_barh([(ready, began - ready)], (place - 0.3, 0.6), color="lightgrey")
            axes.broken_barh([(began, done - began)], (place - 0.3, 0.6), color="tab:blue")
            axes.text(done, place, f" {_short(transfer.bucket)}", va="center", fontsize=8)
        axes.axvline(0, color="tab:red", label="backward ended")
        axes.set(yticks=[], title=f"sent {way}")
        axes.margins(x=0.2)
    panels[0].legend()
    panels[1].set_xlabel("ms since backward ended (grey: waiting, blue: on the wire)")
    figure.savefig(file, dpi=120)


def _short(bucket: str) -> str:
    return "word embeddings" if bucket.startswith("allgather") else bucket.split(".", 1)[1].removesuffix(".plain")


if __name__ == "__main__":
    main()
