"""Rows a second beside transformers' Trainer: `.venv/tasks/bin/python -m benchmarks.train_throughput`.

Every measurement is a process of its own, which trains a few steps that are thrown away and then once over the same
rows; the cases take turns, so that a machine that slows down slows them all. --ablation switches off what makes the
engine fast, a field at a time; --accuracy trains on all rows instead, and compares accuracy on dev.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hf_trainer import Run, run_trainer
from benchmarks.links import LOCAL
from benchmarks.ranks import measure
from benchmarks.tables import spread, table
from benchmarks.timed_rank import Timing
from benchmarks.workload import BATCH, Workload, add_arguments, prepare
from tasks.launching.launch import launch
from tasks.training.device import usable_gpus

#: Trainer sorts 50 batches together, ours 128: this many rows hold four of its pools. With 1,600 rows it would sort
#: only 12 together and pad four times as much as on all of SST-2.
ROWS = 200 * BATCH
WARMUP = 20
DEFAULT, BEST = "Trainer, as run_glue uses it", "Trainer, best switches"
CORES = len(os.sched_getaffinity(0))
ONE_RANK, TWO_RANKS = f"ours, 1 x {CORES}", f"ours, 2 x {max(1, CORES // 2)}"


@dataclass(frozen=True)
class Case:
    """A way to train.

    Attributes:
        ranks: of our engine; 0: Trainer.
        overrides: of the experiment.
        best: Trainer's best switches.
        fixed: every batch is padded to max_length, so that all take the same time and a few tell enough.
    """

    ranks: int = 1
    overrides: tuple[str, ...] = ()
    best: bool = False
    fixed: bool = False

    def rows_per_second(self, workload: Workload, output: Path) -> float:
        """Measure once, on all of the workload's rows."""
        steps = workload.rows // BATCH
        few = self.fixed and not usable_gpus()  # seconds a step on a CPU
        warmup, steps = (1, min(steps, 6)) if few else (min(steps, WARMUP), steps)
        job = workload.job(output, *self.overrides, f"training.ranks={max(1, self.ranks)}", "training.epochs=1")
        if not self.ranks:
            result = run_trainer(job, Run(self.best, warmup, steps), CORES)
            return result["rows"] / result["seconds"]
        first, *_ = measure(job, Timing(warmup, steps), max(1, CORES // self.ranks), [LOCAL] * self.ranks)
        return first[0].rows_per_second


CASES = {
    DEFAULT: Case(ranks=0, fixed=True),
    BEST: Case(ranks=0, best=True),
    ONE_RANK: Case(),
    TWO_RANKS: Case(ranks=2),
}
STATIC, FP32, DENSE = "batching.kind=static", "training.precision=fp32", "training.sparse_embeddings=false"
ABLATION = {
    ONE_RANK: Case(),
    "without row-sparse embeddings": Case(overrides=(DENSE,)),
    "without fused layers": Case(overrides=("training.fused_layers=false",)),
    "compiled layers in their place": Case(overrides=("training.compiled_layers=true",)),
    "in fp32": Case(overrides=(FP32,)),
    "in bf16": Case(overrides=("training.precision=bf16",)),
    "without batches of like length": Case(overrides=(STATIC,), fixed=True),
    "without any of them": Case(overrides=(STATIC, FP32, DENSE), fixed=True),
}


def main() -> None:
    """Prepare the data once, then print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="auto", help="fp32 or auto, for Trainer and ours")
    parser.add_argument("--rows", type=int, default=ROWS, help="that each measurement trains on")
    parser.add_argument("--ablation", action="store_true", help="ours alone, each field off")
    parser.add_argument("--accuracy", action="store_true", help="accuracy on dev after all rows")
    parser.add_argument("--epochs", type=float, default=1.0, help="of --accuracy")
    parser.add_argument("--seed", type=int, default=1, help="of --accuracy")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        workload = prepare(arguments, scratch, f"training.precision={arguments.precision}")
        if arguments.accuracy:
            print(accuracy(workload, scratch, arguments.epochs, arguments.seed))
        elif arguments.ablation:
            print(throughput(workload.with_rows(arguments.rows), scratch, ABLATION, (ONE_RANK,), arguments.rounds))
        elif arguments.quick:
            cases = {name: case for name, case in CASES.items() if name != TWO_RANKS}
            print(throughput(workload.with_rows(2 * BATCH), scratch, cases, (DEFAULT, BEST), rounds=1))
        else:
            print(throughput(workload.with_rows(arguments.rows), scratch, CASES, (DEFAULT, BEST), arguments.rounds))


def throughput(workload: Workload, scratch: Path, cases: dict[str, Case], against: tuple[str, ...], rounds: int) -> str:
    """Measure the cases in turn: their rows per second, and in each round how many times as many as some others."""
    if usable_gpus() == 1:  # a rank needs a GPU of its own
        cases = {name: case for name, case in cases.items() if case.ranks < 2}
    speeds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds):
        for position, (name, case) in enumerate(cases.items()):
            speeds[name].append(case.rows_per_second(workload, scratch / f"output-{number}-{position}"))

    def times(values: list[float], base: str) -> str:
        return spread([own / other for own, other in zip(values, speeds[base], strict=True)], 2)

    header = ("configuration, ranks x threads", "rows/s, median (lowest to highest)")
    return table(
        (*header, *(f"times {name}" for name in against)),
        [(name, spread(values, 1), *(times(values, base) for base in against)) for name, values in speeds.items()],
    )


def accuracy(workload: Workload, scratch: Path, epochs: float, seed: int) -> str:
    """Train both on all rows with one seed; the dev split's accuracy at the end, not at its best."""
    told = (f"training.epochs={epochs}", f"training.seed={seed}", "training.evaluations=1", "training.patience=0")
    theirs = run_trainer(workload.job(scratch / "theirs", *told), Run(True, 0, 0, score=True), CORES)
    ours = workload.job(scratch / "ours", *told, "training.ranks=1")
    launch(ours)
    lines = [json.loads(line) for line in (ours.output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    summary = json.loads((ours.output / "training.json").read_text(encoding="utf-8"))
    return table(
        ("configuration", "accuracy on dev", "rows/s"),
        [
            (BEST, f"{theirs['accuracy']:.4f}", f"{theirs['rows'] / theirs['seconds']:.1f}"),
            (ONE_RANK, f"{lines[-1]['accuracy']:.4f}", f"{summary['rows_per_second']:.1f}"),
        ],
    )


if __name__ == "__main__":
    main()
