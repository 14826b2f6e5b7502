"""Rows a second of the training engine, in one run: `.venv/tasks/bin/python -m tests.benchmarks.training_speed`.

Compares ranks, precision and the wire on the bundled corpus with the small encoder, each several times in turn, so
that a machine that slows down slows them all. Prints the median and the spread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from include.named import load
from include.runs import Run
from tasks.assets import encoder_folder
from tasks.engine.job import Job
from tasks.engine.launch import launch
from tasks.runner import run_stage

CASES = {
    "1 rank, fp32": ("training.ranks=1", "training.precision=fp32"),
    "1 rank, bf16": ("training.ranks=1",),
    "2 ranks, bf16": ("training.ranks=2",),
    "2 ranks, bf16, fp16 wire": ("training.ranks=2", "communication.compression=fp16"),
}
SHORT = ("training.epochs=0.1", "training.evaluations=1")


def main() -> None:
    """Prepare the data once, time the cases in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    speeds: dict[str, list[float]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as scratch:
        run = Run(Path(scratch, "runs", "benchmark"))
        for stage in ("validate", "preprocess"):
            data = run_stage(stage, load("movies"), run).path
        for _ in range(repeats):
            for case, overrides in CASES.items():
                with tempfile.TemporaryDirectory(dir=scratch) as output:
                    speeds[case].append(_speed(data, Path(output), overrides))
    print("| configuration | rows/s, median | lowest to highest |\n| --- | --- | --- |")
    for case, values in speeds.items():
        print(f"| {case} | {statistics.median(values):.0f} | {min(values):.0f} to {max(values):.0f} |")


def _speed(data: Path, output: Path, overrides: tuple[str, ...]) -> float:
    experiment = load("movies", [*SHORT, *overrides])
    launch(Job(experiment, encoder_folder(experiment.model.name, False), data, output, False))
    return float(json.loads((output / "training.json").read_text())["rows_per_second"])


if __name__ == "__main__":
    main()
