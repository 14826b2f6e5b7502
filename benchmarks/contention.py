"""Rows per second alone and beside others: `.venv/tasks/bin/python -m benchmarks.contention`.

The threads of one rank meet at a barrier hundreds of times a step. How long a thread that came first spins there before
it sleeps decides how fast a training is by itself, and how much it loses when others want the same cores. Each row of
the table is one setting of OpenMP; the settings take turns.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from benchmarks.ranks import measure
from benchmarks.tables import spread, table
from benchmarks.timed_rank import Timing
from benchmarks.workload import BATCH, Workload, add_arguments, prepare

CORES = len(os.sched_getaffinity(0))
SETTINGS = {
    "libgomp's own": {"GOMP_SPINCOUNT": "300000"},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "GOMP_SPINCOUNT=0": {"GOMP_SPINCOUNT": "0"},
}
TOGETHER = 3


def main() -> None:
    """Prepare the data once, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="that each training is measured for")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        steps, rounds = (2, 1) if arguments.quick else (arguments.steps, arguments.rounds)
        print(compare(prepare(arguments, scratch).with_rows(steps * BATCH), scratch, rounds))


def compare(workload: Workload, scratch: Path, rounds: int) -> str:
    """The table of all settings, one training by itself and three at once."""
    alone: dict[str, list[float]] = {name: [] for name in SETTINGS}
    beside: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(rounds):
        for name in SETTINGS:
            alone[name] += rows_per_second(workload, scratch, SETTINGS[name], 1)
            beside[name] += rows_per_second(workload, scratch, SETTINGS[name], TOGETHER)
    header = ("OpenMP", "rows/s alone, median (lowest to highest)", f"rows/s of each of {TOGETHER} at once")
    return table(header, [(name, spread(alone[name], 1), spread(beside[name], 1)) for name in SETTINGS])


def rows_per_second(workload: Workload, scratch: Path, setting: dict[str, str], count: int) -> list[float]:
    """Of so many trainings at once, each of one rank with all threads."""
    steps = workload.rows // BATCH
    jobs = [workload.job(scratch / f"output-{number}", "training.ranks=1") for number in range(count)]
    with mock.patch.dict(os.environ, setting), ThreadPoolExecutor(count) as pool:
        measured = pool.map(lambda job: measure(job, Timing(min(5, steps), steps), CORES), jobs)
        return [ranks[0][0].rows_per_second for ranks in measured]


if __name__ == "__main__":
    main()
