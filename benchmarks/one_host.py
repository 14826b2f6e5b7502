"""Ranks that share a host: `.venv/tasks/bin/python -m benchmarks.one_host --data /path/to/glue`.

Two ranks with one thread each do the work of one rank with two threads. They exchange gradients through Gloo and update
all weights, or they share memory and update half of the weights each. The cases take turns, and each is compared with
the one rank of the same round. --figure FILE draws what the ranks spend a step on. --busy N keeps N cores busy with
other work.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.links import LOCAL
from benchmarks.ranks import measure
from benchmarks.tables import spread, table
from benchmarks.timed_rank import Measurement, Timing
from benchmarks.workload import BATCH, Workload, add_arguments, prepare

WARMUP, STEPS = 10, 60
ONE, GLOO, SHARED = "1 x 2", "2 x 1, Gloo", "2 x 1, shared memory"
RANKS = {ONE: 1, GLOO: 2, SHARED: 2}
#: The phases of a step in their order, and their colors. What is sent during the backward pass counts as backward.
PHASES = {
    **{"data": "tab:gray", "forward": "tab:cyan", "backward": "tab:blue"},
    **{"exchange": "tab:red", "optimizer": "tab:green"},
}

Round = dict[str, list[Measurement]]


def main() -> None:
    """Prepare the data once, then print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0, help="the number of processes that compute beside the ranks")
    parser.add_argument("--figure", type=Path, help="where to draw the phases of a step (PNG)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        steps, rounds = (2, 1) if arguments.quick else (STEPS, arguments.rounds)
        workload = prepare(arguments, scratch).with_rows(steps * BATCH)
        with _others(arguments.busy):
            measured = [{case: _measure(workload, scratch / "output", case) for case in RANKS} for _ in range(rounds)]
    print(_table(measured))
    if arguments.figure:
        draw(measured, arguments.figure)


@contextmanager
def _others(count: int) -> Iterator[None]:
    """So many processes that never wait."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _measure(workload: Workload, output: Path, case: str) -> list[Measurement]:
    """Of each rank."""
    ranks, steps = RANKS[case], workload.rows // BATCH
    timing = Timing(min(WARMUP, steps), steps, shared=case != GLOO)
    job = workload.job(output, f"training.ranks={ranks}")
    return [rates[0] for rates in measure(job, timing, 2 // ranks, [LOCAL] * ranks)]


def _table(measured: Sequence[Round]) -> str:
    steps = [{case: 1000 * statistics.median(one[case][0].seconds) for case in RANKS} for one in measured]
    header = ("ranks x threads", "a step, ms, median (lowest to highest)", "speed, 1 x 2 of the same round being 1")
    return table(
        header,
        [
            (case, spread([one[case] for one in steps], 1), spread([one[ONE] / one[case] for one in steps], 2))
            for case in RANKS
        ],
    )


def draw(measured: Sequence[Round], file: Path) -> None:
    """Draw a row for each rank, in which a mean step's phases follow one another."""
    lines = {
        f"{case}: rank {rank}": [one[case][rank] for one in measured] for case in RANKS for rank in range(RANKS[case])
    }
    figure = Figure(figsize=(9, 0.5 * len(lines) + 1.6), layout="constrained")
    axes = figure.subplots()
    for place, ranks in enumerate(lines.values()):
        start = 0.0
        for phase, color in PHASES.items():
            width = 1000 * statistics.mean(rank.phases[phase] / len(rank.seconds) for rank in ranks)
            axes.barh(-place, width, 0.7, start, color=color, label=None if place else phase)
            start += width
    axes.set(yticks=[-place for place in range(len(lines))], yticklabels=list(lines), xlabel="ms of a mean step")
    figure.legend(loc="outside upper center", ncols=len(PHASES))
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
