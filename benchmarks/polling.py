"""Rows per second by Horovod's cycle time: `.venv/tasks/bin/python -m benchmarks.polling --data /path/to/glue`.

Whole trainings of two ranks with one thread each, started as a stage starts them. With 0 ms and no cache, as Horovod's
own launcher would have it, Horovod's thread never sleeps. The settings take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from unittest import mock

from benchmarks.tables import spread, table
from benchmarks.workload import BATCH, Workload, add_arguments, prepare
from tasks.launching.launch import launch
from tasks.launching.tuning import CACHE, CYCLE

STEPS = 60
SLEEPLESS, QUICK_CYCLES, CYCLES = "0", ("0", "10"), ("0", "1", "10", "20")  # ms
WAYS = {
    "shared memory": (),
    "onebit, through Gloo": ("communication.compression=onebit", "communication.compression_start=0"),
    "parameter server": ("communication.strategy=parameter-server",),
}


def main() -> None:
    """Prepare the data once, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    steps, rounds, cycles = (2, 1, QUICK_CYCLES) if arguments.quick else (STEPS, arguments.rounds, CYCLES)
    speeds: dict[tuple[str, str], list[float]] = {(way, cycle): [] for way in WAYS for cycle in cycles}
    with tempfile.TemporaryDirectory() as name:
        workload = prepare(arguments, Path(name)).with_rows(steps * BATCH)
        for number in range(rounds):
            for way, cycle in speeds:
                output = Path(name) / f"output-{number}-{way}-{cycle}"
                speeds[way, cycle].append(rows_per_second(workload, output, way, cycle))
    print(compare(speeds))


def rows_per_second(workload: Workload, output: Path, way: str, cycle: str) -> float:
    """Of one epoch on all rows of the workload."""
    job = workload.job(output, "training.ranks=2", "training.epochs=1", "training.evaluations=1", *WAYS[way])
    with mock.patch.dict(os.environ, {CYCLE: cycle} | ({CACHE: "0"} if cycle == SLEEPLESS else {})):
        launch(job)
    return float(json.loads((output / "training.json").read_text(encoding="utf-8"))["rows_per_second"])


def compare(speeds: dict[tuple[str, str], list[float]]) -> str:
    """The table of all settings."""
    rows = []
    for (way, cycle), found in speeds.items():
        ratios = [speed / sleepless for speed, sleepless in zip(found, speeds[way, SLEEPLESS], strict=True)]
        rows.append((way, cycle, spread(found, 1), spread(ratios, 2)))
    return table(("exchange", "cycle, ms", "rows/s, median (lowest to highest)", "times 0 ms, round by round"), rows)


if __name__ == "__main__":
    main()
