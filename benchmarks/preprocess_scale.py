"""From a TSV file to token ids, by number of rows: `.venv/tasks/bin/python -m benchmarks.preprocess_scale`.

The stages validate and preprocess run as the pipeline runs them, each in a process of its own with a Spark of its own.
They are compared with datasets (benchmarks/hf_map.py), which does not check the rows: load_dataset("csv") and map, in
batches, with the same tokenizer and as many processes as there are cores. All start from the same file and include
their start. Its rows are made of the training texts of --data: after the first ones, each is the first half of the
words of one text and the second half of those of another, so that nearly all differ.

Memory is the peak of the whole process tree, the JVM included: the proportional set size, sampled twice a second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from matplotlib.figure import Figure

from benchmarks.tables import spread, table
from benchmarks.workload import add_arguments
from include.experiment import Experiment
from include.named_experiments import load
from tasks.assets import encoder_folder
from tasks.launching.launch import ROOT
from tasks.sources import open_source
from tests.tasks.encoder.samples import reviews, tiny_encoder

ROWS = (67_000, 670_000, 6_700_000)
ROUNDS = (3, 3, 1)
DEV = 500  # rows
CORES = len(os.sched_getaffinity(0))
VALIDATE, PREPROCESS, BOTH, PEER = "validate", "preprocess", "both", "datasets"
CASES, OURS = (VALIDATE, PREPROCESS, BOTH, PEER), (PREPROCESS, BOTH)

Pair = tuple[str, str]  # a text and its label


@dataclass(frozen=True)
class Measurement:
    """Seconds, and the peak of the memory in bytes."""

    seconds: float
    memory: float

    def then(self, other: Measurement) -> Measurement:
        """Return what both take, one after the other."""
        return Measurement(self.seconds + other.seconds, max(self.memory, other.memory))


Found = dict[int, dict[str, list[Measurement]]]  # by rows and case


def main() -> None:
    """Measure all sizes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="the sizes")
    parser.add_argument("--rounds", type=int, nargs="+", default=ROUNDS, help="how often each size is measured")
    parser.add_argument("--plot", type=Path, help="a PNG file to write")
    arguments = parser.parse_args()
    sizes = {200: 1} if arguments.quick else dict(zip(arguments.rows, arguments.rounds, strict=True))
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        encoder, train, dev = _texts(arguments, scratch)
        found: Found = {}
        for rows, rounds in sizes.items():
            write_rows(scratch / "train.tsv", train, rows)
            write_rows(scratch / "dev.tsv", dev, min(DEV, len(dev)))
            found[rows] = measure(encoder, scratch, rounds)
            print(_table({rows: found[rows]}), flush=True)
    if len(sizes) > 1:
        print(f"\n{_table(found)}")
    if arguments.plot:
        draw(found, arguments.plot)


def _texts(arguments: argparse.Namespace, scratch: Path) -> tuple[Path, list[Pair], list[Pair]]:
    """Return the encoder, and texts with labels for train and dev."""
    if arguments.quick:
        encoder = tiny_encoder(scratch / "encoder", max_position_embeddings=512)
        samples = (reviews(count, seed) for seed, count in enumerate((50, 20)))
        train, dev = ([(text, str(label)) for (text,), label in zip(*sample, strict=True)] for sample in samples)
        return encoder, train, dev
    data = [f"data.path={arguments.data.resolve()}"] if arguments.data else []
    name = arguments.experiment or ("sst2" if data else "movies")
    experiment = load(name, [f"model.name={arguments.encoder}", *data])
    encoder = encoder_folder(experiment.model.name, experiment.runtime)
    return encoder, _pairs(experiment, "train"), _pairs(experiment, "dev")


def _pairs(experiment: Experiment, split: str) -> list[Pair]:
    """Return the rows of a split that need no quotation marks in a TSV file."""
    records = open_source(experiment).records(split)
    return [(one.sentences[0], one.label) for one in records if '"' not in one.sentences[0]]


def write_rows(file: Path, pairs: Sequence[Pair], rows: int) -> None:
    """Write as many rows, made of texts and labels."""
    words = [text.split() for text, _ in pairs]
    with file.open("w", encoding="utf-8") as stream:
        stream.write("sentence\tlabel\n")
        for row in range(rows):
            turn, first = divmod(row, len(pairs))
            second = (first + 7919 * turn) % len(pairs)
            head, tail = words[first], words[second]
            text = [*head[: (len(head) + 1) // 2], *tail[(len(tail) + 1) // 2 :]]
            stream.write(f"{' '.join(text)}\t{pairs[second][1]}\n")


def measure(encoder: Path, scratch: Path, rounds: int) -> dict[str, list[Measurement]]:
    """Measure every case on the files train.tsv and dev.tsv."""
    data = {"task": "classification", "labels": ["0", "1"], "source": "files", "path": str(scratch)}
    experiment = json.dumps({"data": data, "model": {"name": str(encoder)}})
    found: dict[str, list[Measurement]] = defaultdict(list)
    for _ in range(rounds):
        home, cache = scratch / "home", scratch / "cache"
        stages = []
        for stage in (VALIDATE, PREPROCESS):
            stages.append(run("-m", "tasks", stage, "--experiment", experiment, "--run", str(home / "runs" / "one")))
            found[stage].append(stages[-1])
        found[BOTH].append(stages[0].then(stages[1]))
        shutil.rmtree(home)
        peer = ("-m", "benchmarks.hf_map", str(scratch / "train.tsv"), str(encoder), str(cache), str(CORES))
        found[PEER].append(run(*peer))
        shutil.rmtree(cache)
    return found


def run(*arguments: str) -> Measurement:
    """Run Python with these arguments, and return what it took; raise RuntimeError with its output if it fails."""
    with tempfile.TemporaryFile() as output:
        started, memory = time.perf_counter(), 0
        process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        while True:
            with suppress(subprocess.TimeoutExpired):
                if process.wait(0.5):
                    output.seek(0)
                    raise RuntimeError(output.read().decode())
                return Measurement(time.perf_counter() - started, memory)
            memory = max(memory, _memory(psutil.Process(process.pid)))


def _memory(process: psutil.Process) -> int:
    """Return the proportional set size of a process and all that it has started, in bytes."""
    size = 0
    with suppress(psutil.NoSuchProcess):
        for each in (process, *process.children(recursive=True)):
            with suppress(OSError):  # it has ended
                rollup = Path(f"/proc/{each.pid}/smaps_rollup").read_text(encoding="ascii")
                size += 1024 * sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return size


def _table(found: Found) -> str:
    header = ("rows", *(f"{case}, s" for case in CASES), *(f"{case} / {PEER}" for case in OURS))
    lines = []
    for rows, cases in found.items():
        times = [spread([one.seconds for one in cases[case]], 1) for case in CASES]
        lines.append([f"{rows:,}", *times, *(spread(_ratios(cases[case], cases[PEER]), 2) for case in OURS)])
    memory = [
        [f"{rows:,}", *(spread([one.memory / 1e6 for one in cases[case]]) for case in CASES)]
        for rows, cases in found.items()
    ]
    return f"{table(header, lines)}\n\n{table(('rows', *(f'{case}, MB' for case in CASES)), memory)}"


def _ratios(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> list[float]:
    return [one.seconds / other.seconds for one, other in zip(ours, theirs, strict=True)]


def draw(found: Found, file: Path) -> None:
    """Draw time and memory by the number of rows."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, case in enumerate(CASES):
        style = {"marker": "o", "color": f"C{place}", "linestyle": "--" if case == PEER else "-", "label": case}
        medians = [sorted(cases[case], key=lambda one: one.seconds)[len(cases[case]) // 2] for cases in found.values()]
        left.plot(list(found), [one.seconds for one in medians], **style)
        if case != BOTH:
            right.plot(list(found), [one.memory / 1e9 for one in medians], **style)
    left.set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds")
    right.set(xscale="log", xlabel="rows", ylabel="peak memory, GB", ylim=0)
    left.legend()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
