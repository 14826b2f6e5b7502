"""How much of the exchange backward hides: `.venv/tasks/bin/python -m tests.benchmarks.overlap --figure overlap.png`.

Two ranks train with Horovod's timeline on: as the engine does it, and sending all gradients after the backward pass.
Norms, biases and head leave when backward has ended; what of the other buckets' transfer lies before that is hidden.
The figure shows of either way the step whose last transfer ends in the median time after backward.
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

from tasks.launching import polling
from tests.benchmarks.links import LOCAL
from tests.benchmarks.ranks import measure
from tests.benchmarks.tables import spread, table
from tests.benchmarks.timed_rank import Timing
from tests.benchmarks.workload import BATCH, Workload, add_arguments, prepare

STEPS, WARMUP, QUICK_STEPS = 24, 4, 3
TRAINING = ("training.ranks=2", "communication.compression_start=1")  # or a bucket would have a second name
AFTER, DURING = "after backward", "during backward"
LAST = "allreduce.rest.plain"  # leaves when backward has ended


@dataclass(frozen=True)
class Transfer:
    """A bucket's way over the wire, in seconds of the timeline: rank 0 had it ready, it began, it ended."""

    bucket: str
    ready: float
    began: float
    ended: float

    def hidden(self, backward_ended: float) -> float:
        """Its share before that moment."""
        return min(1.0, max(0.0, (backward_ended - self.began) / (self.ended - self.began)))


Step = list[Transfer]


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
    # For a tensor that it remembers, Horovod records no negotiation.
    with mock.patch.dict(os.environ, {"HOROVOD_TIMELINE": str(file), polling.CACHE: "0"}):
        measure(job, timing, 1, [LOCAL] * 2)
    return by_step(transfers(json.loads(file.read_text(encoding="utf-8"))))[timing.warmup :]


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
        elif event["ph"] == "X" and event["name"] == "0":
            ready[bucket] = moment
        elif event["ph"] == "B":
            open_phases[bucket].append((event["name"], moment))
        elif event["ph"] == "E":
            phase, began = open_phases[bucket].pop()
            if phase.startswith(("GLOO_", "NCCL_", "MPI_")):
                found.append(Transfer(names[bucket], ready[bucket], began, moment))
    return found


def by_step(found: Sequence[Transfer]) -> list[Step]:
    """The gradients' transfers, step by step: each step has one of every bucket."""
    of_bucket: defaultdict[str, list[Transfer]] = defaultdict(list)
    for transfer in found:
        if transfer.bucket.startswith(("allreduce.matrices", "allreduce.rest", "allgather.rows")):
            of_bucket[transfer.bucket].append(transfer)
    return [list(step) for step in zip(*of_bucket.values(), strict=True)]


def describe(steps: Sequence[Step]) -> str:
    """A table of the buckets: the hidden share of their transfer, and how long it took."""
    rows = []
    for bucket in zip(*steps, strict=True):
        ends = [backward_ended(step) for step in steps]
        hidden = [100 * t.hidden(end) for t, end in zip(bucket, ends, strict=True)]
        rows.append([bucket[0].bucket, spread(hidden), spread([1000 * (t.ended - t.began) for t in bucket], 1)])
    return table(["bucket", "hidden by backward, %", "transfer, ms"], rows)


def compare(found: Mapping[str, Sequence[Step]]) -> str:
    """A table of both ways: how long after backward the last transfer ends."""
    rows = [(way, spread([1000 * exposed(step) for step in steps], 1)) for way, steps in found.items()]
    return table(["gradients are sent", "from the end of backward to that of the last transfer, ms"], rows)


def backward_ended(step: Step) -> float:
    """When rank 0 had computed all gradients."""
    return next(transfer.ready for transfer in step if transfer.bucket == LAST)


def exposed(step: Step) -> float:
    """Seconds of the exchange that backward does not hide."""
    return max(transfer.ended for transfer in step) - backward_ended(step)


def draw(found: Mapping[str, Sequence[Step]], file: Path) -> None:
    """A bar for each bucket's transfer, and a line where backward ended."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    buckets = len(found[DURING][0])
    figure, panels = pyplot.subplots(2, sharex=True, figsize=(9, buckets + 1.6), layout="constrained")
    for axes, (way, steps) in zip(panels, found.items(), strict=True):
        middle = statistics.median_low([exposed(step) for step in steps])
        step = next(step for step in steps if exposed(step) == middle)
        end = backward_ended(step)
        for place, transfer in enumerate(sorted(step, key=lambda t: -t.ready)):
            ready, began, done = (1000 * (t - end) for t in (transfer.ready, transfer.began, transfer.ended))
            axes.broken_barh([(ready, began - ready)], (place - 0.3, 0.6), color="lightgrey")
            axes.broken_barh([(began, done - began)], (place - 0.3, 0.6), color="tab:blue")
            name = transfer.bucket.partition(".")[2].partition(".encoder")[0].removesuffix(".plain")
            axes.text(done, place, f" {name}", va="center", fontsize=8)
        axes.axvline(0, color="tab:red", label="backward ended")
        axes.set(yticks=[], title=f"sent {way}")
        axes.margins(x=0.2)
    panels[0].legend()
    panels[1].set_xlabel("ms since backward ended (grey: waiting, blue: on the wire)")
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
