"""Check a machine with a GPU: `make gpu-check`, or `python3 -m benchmarks.gpu` in any environment.

First, the losses of small trainings are compared with those of the CPU, and the engine's tests that apply are run. Then
each row of the papers' table 5 (Spark-BERT) trains an encoder of BERT-base's size on rows as long as SST-2's, beside
transformers' Trainer. What fails or takes too long is shown as such, and the rest goes on. The exit code is 1 where
there is no GPU, or where something is wrong; a goal that is missed is not wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
import transformers

from benchmarks.gpu import engine_tests, limits, losses
from benchmarks.gpu.cases import ONE_GPU, SWITCHES, TRAINER, Case, beside, table5
from benchmarks.gpu.goals import goals_table
from benchmarks.gpu.report import Measured, Work, main_table, sizes_table
from benchmarks.gpu.rows import BASE, SMALL, operations, write_encoder, write_rows
from benchmarks.gpu.turns import take_turns
from include.artifacts import write_json
from include.named_experiments import load
from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.launching.rank import JOB
from tasks.training.device import usable_gpus
from tasks.training.job import Job

OTHER_SIZES = (32, 1024)
TOO_LARGE = "torch.OutOfMemoryError"  # a case that needs more memory than the GPU has is not the engine's fault
PART = 4  # cases of a fixed shape train on this part of the rows
LIMIT = 540.0  # seconds for all, of which half may be spent on correctness


def main() -> int:
    """Print the tables; return the exit code."""
    arguments = _arguments()
    try:
        gpus = usable_gpus()
    except BadInput as error:
        print(f"{error}: nothing was checked", file=sys.stderr)
        return 1
    if not gpus and not arguments.quick:
        print(f"there is no GPU that torch {torch.__version__} could use: nothing was checked", file=sys.stderr)
        return 1
    print(_machine(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        check = Check(Path(name), arguments)
        if not arguments.only_speed:
            check.correctness()
        check.speed()
    for problem in check.wrong:
        print(f"WRONG: {problem}")
    if arguments.output:
        write_json(arguments.output, {"machine": _machine(), "wrong": check.wrong, **check.figures})
    return 1 if check.wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="in which all cases are measured once")
    parser.add_argument("--rows", type=int, default=8192, help="of a pass, which a case does in each round")
    parser.add_argument("--batch-size", type=int, default=256, help="rows per step of the first table")
    parser.add_argument("--patience", type=float, default=120, help="seconds in which a case must have loaded")
    parser.add_argument("--seconds", type=float, default=LIMIT, help="that the check may take")
    parser.add_argument("--output", type=Path, help="a JSON file for all figures")
    parser.add_argument("--only-speed", action="store_true", help="without the checks of correctness")
    parser.add_argument("--quick", action="store_true", help="a tiny encoder, also on a CPU: does it work?")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.rows, chosen.batch_size = 2, 32 * PART, 32
    return chosen


class Check:
    """A check: all that it has measured is in `figures`, and what is wrong with the engine in `wrong`."""

    def __init__(self, scratch: Path, arguments: argparse.Namespace) -> None:
        self._scratch, self._arguments = scratch, arguments
        self._began = time.monotonic()
        self.figures: dict[str, object] = {}
        self.wrong: list[str] = []

    def correctness(self) -> None:
        """Compare losses, and run the engine's tests."""
        quick, seconds = self._arguments.quick, self._arguments.seconds
        fitting = [name for name, variant in losses.VARIANTS.items() if variant.gpus <= usable_gpus()]
        names = ("fp32",) if quick else tuple(fitting)
        lines, wrong = losses.compare(self._scratch / "losses", names, self._began + seconds / 4)
        print(f"\n{lines}\n", flush=True)
        tests = engine_tests.run(quick, self._began + seconds / 2)
        print(f"tests of the engine:\n{tests.summary}", flush=True)
        self.figures |= {"losses": lines, "tests": tests.summary}
        self.wrong += wrong + tests.failed

    def speed(self) -> None:
        """Measure, and print the tables."""
        chosen, scratch = self._arguments, self._scratch
        config = write_encoder(scratch / "encoder", SMALL if chosen.quick else BASE)
        for data, rows in (("data", chosen.rows), ("part", chosen.rows // PART)):
            write_rows(scratch / data / "train", rows, config.vocab_size, seed=1)
            write_rows(scratch / data / "dev", 32, config.vocab_size, seed=2)
        tokens = TokenTable.open(scratch / "data" / "train").lengths
        limit, why = limits.measured_apart(256 if chosen.quick else limits.SIZE, self._end)
        work = Work(len(tokens), int(tokens.sum()), operations(config, tokens), limit)
        self.figures["work"] = dataclasses.asdict(work)
        told = f"{limit / 1e12:,.1f} TFLOP/s measured" if limit else f"not measured: {why}"
        print(f"\nbf16 limit: {told}{_by_data_sheet()}", flush=True)
        print(f"rows: {work.rows:,}, tokens: {work.tokens:,}, rows per step: {chosen.batch_size:,}\n", flush=True)
        cases = [*table5(), *beside()]
        if chosen.quick:
            cases = [cases[0], ONE_GPU, TRAINER]
        measured = self._measure(cases, chosen.batch_size, chosen.rounds)
        print(main_table(cases, measured, work, cases[0].name, TRAINER.name), flush=True)
        goals = goals_table(cases, measured)
        print(f"\n{goals}", flush=True)
        self.figures["goals"] = goals
        if chosen.quick:
            return
        pair = [ONE_GPU, TRAINER]
        by_size = {size: self._measure(pair, size, min(3, chosen.rounds)) for size in OTHER_SIZES}
        by_size[chosen.batch_size] = measured
        print(f"\n{sizes_table(by_size, work, [case.name for case in pair])}", flush=True)

    @property
    def _end(self) -> float:
        return self._began + float(self._arguments.seconds)

    def _measure(self, cases: Sequence[Case], batch_size: int, rounds: int) -> Measured:
        began = time.monotonic()
        folder = self._scratch / f"rows-{batch_size}"

        def start(case: Case) -> tuple[str, Path]:
            output = folder / str(cases.index(case))
            output.mkdir(parents=True)
            fields = (*case.overrides, f"training.batch_size={batch_size}", "training.ranks=1")
            data = self._scratch / ("part" if case.fixed else "data")
            job = Job(load("{}", fields), self._scratch / "encoder", data, output)
            job.write(output / JOB)
            write_json(output / SWITCHES, case.trainer)
            return f"benchmarks.gpu.{'trainer' if case.trainer else 'engine'}", output

        measured, lost = take_turns(cases, start, rounds, self._arguments.patience, self._end)
        for name, reason in lost.items():
            print(f"not measured: {name}: {reason}\n", flush=True)
        failed = {name for name, reason in lost.items() if TOO_LARGE not in reason}
        self.wrong += [f"{case.name} was not measured" for case in cases if case.name in failed and not case.trainer]
        turns = {name: [dataclasses.asdict(turn) for turn in turns] for name, turns in measured.items()}
        took = round(time.monotonic() - began)
        self.figures[f"rows per step: {batch_size}"] = {"turns": turns, "lost": lost, "seconds": took}
        return measured


def _machine() -> str:
    parts = [f"Python {platform.python_version()}", f"torch {torch.__version__}"]
    parts.append(f"transformers {transformers.__version__}")
    if usable_gpus():
        parts.insert(0, f"{torch.cuda.get_device_name()}, GPUs: {torch.cuda.device_count()}")
    try:
        parts.append(f"horovod {version('horovod')}")
    except PackageNotFoundError:
        parts.append("no Horovod, so nothing is compressed")
    return ", ".join(parts)


def _by_data_sheet() -> str:
    limit = limits.data_sheet(torch.cuda.get_device_name()) if usable_gpus() else None
    return f", {limit / 1e12:,.0f} by the data sheet" if limit else ""


if __name__ == "__main__":
    sys.exit(main())
