"""Ranks that share a host: `.venv/tasks/bin/python -m tests.benchmarks.one_host --data /path/to/glue`.

Two ranks with one thread each do the work of one rank with two threads. They exchange gradients through Gloo and update
all weights, or they share memory and update half of the weights each. The cases take turns, and each is compared with
the one rank of the same round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from tests.benchmarks.links import LOCAL
from tests.benchmarks.ranks import measure
from tests.benchmarks.tables import spread, table
from tests.benchmarks.timed_rank import Timing
from tests.benchmarks.workload import BATCH, Workload, add_arguments, prepare

WARMUP, STEPS = 10, 60
ONE, GLOO, SHARED = "1 x 2", "2 x 1, Gloo", "2 x 1, shared memory"
RANKS = {ONE: 1, GLOO: 2, SHARED: 2}


def main() -> None:
    """Prepare the data once, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        steps, rounds = (2, 1) if arguments.quick else (STEPS, arguments.rounds)
        workload = prepare(arguments, scratch).with_rows(steps * BATCH)
        print(_table([{case: _step(workload, scratch / "output", case) for case in RANKS} for _ in range(rounds)]))


def _step(workload: Workload, output: Path, case: str) -> float:
    """The median step in ms."""
    ranks, steps = RANKS[case], workload.rows // BATCH
    timing = Timing(min(WARMUP, steps), steps, shared=case != GLOO)
    first, *_ = measure(workload.job(output, f"training.ranks={ranks}"), timing, 2 // ranks, [LOCAL] * ranks)
    return 1000 * statistics.median(first[0].seconds)


def _table(rounds: list[dict[str, float]]) -> str:
    header = ("ranks x threads", "a step, ms, median (lowest to highest)", "speed, 1 x 2 of the same round being 1")
    return table(
        header,
        [
            (case, spread([one[case] for one in rounds], 1), spread([one[ONE] / one[case] for one in rounds], 2))
            for case in RANKS
        ],
    )


if __name__ == "__main__":
    main()
