"""How much of the exchange backward hides: `.venv/tasks/bin/python -m tests.benchmarks.overlap --figure overlap.png`.

Two ranks train with Horovod's timeline on. Norms, biases and head leave when backward has ended; what of the other
buckets' transfer lies before that is hidden. The figure shows the last whole step.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.launching.launch import launch
from tests.benchmarks.tables import spread, table
from tests.benchmarks.workload import BATCH, add_arguments, prepare

STEPS, WARMUP, QUICK_WARMUP = 24, 4, 1
#: Compression that never starts: what could be compressed goes through Horovod, which makes the timeline.
NEVER = ("communication.compression=fp16", "communication.compression_start=1")
TRAINING = ("training.epochs=1", "training.evaluations=1", "training.ranks=2", *NEVER)
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


def main() -> None:
    """Train, read the timeline, print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--figure", type=Path, help="where to draw a step's timeline (PNG)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        workload = prepare(arguments, scratch).with_rows(STEPS * BATCH)
        os.environ["HOROVOD_TIMELINE"] = str(scratch / "timeline.json")
        launch(workload.job(scratch / "output", *TRAINING))
        steps = by_step(transfers(json.loads((scratch / "timeline.json").read_text(encoding="utf-8"))))
    print(describe(steps[QUICK_WARMUP if arguments.quick else WARMUP :]))
    if arguments.figure:
        draw(steps[-1], arguments.figure)


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


def by_step(found: Sequence[Transfer]) -> list[list[Transfer]]:
    """The gradients' transfers, step by step: each step has one of every bucket."""
    of_bucket: defaultdict[str, list[Transfer]] = defaultdict(list)
    for transfer in found:
        if transfer.bucket.startswith(("allreduce.matrices", "allreduce.rest", "allgather.rows")):
            of_bucket[transfer.bucket].append(transfer)
    return [list(step) for step in zip(*of_bucket.values(), strict=True)]


def describe(steps: list[list[Transfer]]) -> str:
    """A table of the buckets: the hidden share of their transfer, and how long it took."""
    rows = []
    for bucket in zip(*steps, strict=True):
        ends = [next(t.ready for t in step if t.bucket == LAST) for step in steps]
        hidden = [100 * t.hidden(end) for t, end in zip(bucket, ends, strict=True)]
        rows.append([bucket[0].bucket, spread(hidden), spread([1000 * (t.ended - t.began) for t in bucket], 1)])
    return table(["bucket", "hidden by backward, %", "transfer, ms"], rows)


def draw(step: list[Transfer], file: Path) -> None:
    """A bar for each bucket's transfer, and a line where backward ended."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ended = next(transfer.ready for transfer in step if transfer.bucket == LAST)
    start = min(transfer.ready for transfer in step)
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(step) + 1.2), layout="constrained")
    for place, transfer in enumerate(sorted(step, key=lambda t: -t.ready)):
        ready, began, done = (1000 * (t - start) for t in (transfer.ready, transfer.began, transfer.ended))
        axes.broken_barh([(ready, began - ready)], (place - 0.3, 0.6), color="lightgrey")
        axes.broken_barh([(began, done - began)], (place - 0.3, 0.6), color="tab:blue")
        name = transfer.bucket.partition(".")[2].partition(".encoder")[0].removesuffix(".plain")
        axes.text(done, place, f" {name}", va="center", fontsize=8)
    axes.axvline(1000 * (ended - start), color="tab:red", label="backward ended")
    axes.set(yticks=[], xlabel="ms since the first bucket was ready (grey: waiting, blue: on the wire)")
    axes.margins(x=0.2)
    axes.legend()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
