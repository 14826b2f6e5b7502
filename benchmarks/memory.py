"""What each technique does to memory and speed: `.venv/tasks/bin/python -m benchmarks.memory`.

Each row of the table adds to the one above it, as the ablation of the papers does (Spark-BERT, table 5), whose figures
stand beside ours. Every measurement is processes of its own: on CPUs two ranks, on GPUs one for each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.links import LOCAL
from benchmarks.ranks import measure
from benchmarks.tables import spread, table
from benchmarks.timed_rank import Measurement, Timing
from benchmarks.workload import BATCH, Workload, add_arguments, prepare
from tasks.training.device import usable_gpus

CORES, GPUS = len(os.sched_getaffinity(0)), usable_gpus()
RANKS = GPUS or 2
ROWS = 16 * BATCH
FIXED_STEPS = 4  # with static batching on CPUs: seconds a step, all of one shape
BASE = {
    "batching.kind": "static", "training.precision": "fp32", "training.fused_layers": "false",
    "training.sparse_embeddings": "false", "communication.compression": "none", "communication.compression_start": "0",
}  # fmt: skip
#: What each row changes, and throughput and memory of the papers' row, in percent above and below base.
STEPS = {
    "base: static batches, fp32": ({}, (0.0, 0.0)),
    "+ dynamic batching": ({"batching.kind": "length"}, (12.3, 8.5)),
    "+ mixed precision": ({"training.precision": "bf16"}, (18.7, 37.0)),
    "+ fused layers": ({"training.fused_layers": "true"}, None),
    "+ gradient compression": ({"communication.compression": "powersgd"}, (24.5, 42.5)),
    "+ row-sparse embeddings": ({"training.sparse_embeddings": "true"}, None),
    "+ activation checkpointing (full)": ({"training.activation_checkpointing": "true"}, (37.2, 58.3)),
    "full, parameter server for compression": (
        {"communication.compression": "none", "communication.strategy": "parameter-server"},
        None,
    ),
}


def main() -> None:
    """Prepare the data once, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=ROWS, help="that each measurement trains on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        rows, rounds = (2 * BATCH, 1) if arguments.quick else (arguments.rows, arguments.rounds)
        workload = prepare(arguments, scratch).with_rows(rows)
        names = [next(iter(STEPS)), list(STEPS)[-1]] if arguments.quick else list(STEPS)
        measured: dict[str, list[Measurement]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                measured[name].append(_measure(workload, scratch / "output", _experiment(name)))
        print(_table(measured))


def _experiment(name: str) -> dict[str, str]:
    """The base with the changes of all rows down to this one."""
    chosen = dict(BASE)
    for row, (changes, _) in STEPS.items():
        chosen |= changes
        if row == name:
            break
    return chosen


def _measure(workload: Workload, output: Path, chosen: dict[str, str]) -> Measurement:
    """Of the rank that held the most memory."""
    steps = workload.rows // BATCH
    if chosen["batching.kind"] == "static" and not GPUS:
        steps = min(steps, FIXED_STEPS)
    job = workload.job(output, *(f"{key}={value}" for key, value in chosen.items()), f"training.ranks={RANKS}")
    ranks = measure(job, Timing(min(3, steps), steps), max(1, CORES // RANKS), [LOCAL] * RANKS)
    return max((rank[0] for rank in ranks), key=lambda measured: measured.memory)


def _table(measured: dict[str, list[Measurement]]) -> str:
    columns: dict[str, Callable[[Measurement], float]] = {
        "rows/s": lambda one: one.rows_per_second,
        "allocated, MB" if GPUS else "resident, MB": lambda one: one.memory / 1e6,
    }
    if GPUS:
        columns["reserved, MB"] = lambda one: one.reserved / 1e6
    base = next(iter(measured.values()))
    lines = []
    for name, ones in measured.items():
        figures = [spread([column(one) for one in ones], 1) for column in columns.values()]
        speed = 100 * (_median(ones, columns["rows/s"]) / _median(base, columns["rows/s"]) - 1)
        saved = 100 * (1 - _median(ones, lambda one: one.memory) / _median(base, lambda one: one.memory))
        papers = STEPS[name][1]
        beside = [f"{figure:.1f}" for figure in papers] if papers else ["", ""]
        lines.append([name, *figures, f"{speed:+.1f}", f"{saved:.1f}", *beside])
    changes = ("throughput, +%", "memory, -%", "papers: throughput, +%", "papers: memory, -%")
    return table(["configuration", *columns, *changes], lines)


def _median(ones: list[Measurement], column: Callable[[Measurement], float]) -> float:
    return statistics.median(column(one) for one in ones)


if __name__ == "__main__":
    main()
