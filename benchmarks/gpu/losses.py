"""Whether a GPU computes what the CPU does: `python -m benchmarks.gpu.losses FOLDER VARIANT ...` trains.

The losses of every step of small trainings are compared with those of the same trainings in fp32 on the CPU. Where one
fails or takes too long, the others go on in another process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.rows import SMALL, write_encoder, write_rows
from benchmarks.tables import table
from include.artifacts import write_json
from include.named_experiments import load
from tasks.launching.launch import ROOT, launch
from tasks.training.job import Job
from tasks.training.layers import missing_tool

ROWS, BATCH = 640, 32
LIMIT = 60.0  # seconds for a training; the first one of a process imports torch, too
NO_TIME = "there was no time left"
FIELDS = {
    "training.epochs": "2", "training.batch_size": str(BATCH), "training.learning_rate": "2e-3", "training.ranks": "1",
    "training.patience": "0", "training.evaluations": "1", "model.dropout": "0", "preprocessing.max_length": "96",
    "training.precision": "fp32",
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """A training.

    Attributes:
        fields: of the experiment.
        tolerance: the largest difference of a loss, absolute, where a loss is about 0.7.
    """

    fields: Mapping[str, str]
    tolerance: float = 1e-3

    @property
    def gpus(self) -> int:
        """How many it needs, one for each rank."""
        return int(self.fields.get("training.ranks", 1))


HOROVOD = find_spec("horovod") is not None
HALF = 3e-2  # bf16 differs by 1e-3 on a CPU; with weights that never move, a loss differs by 8e-2
COMPILED = {"training.precision": "bf16", "batching.padding_free": "true", "training.compiled_layers": "true"}
SHARDS = {
    "training.ranks": "2", "parallel.shard": "2", "training.sparse_embeddings": "false",
    "training.fused_layers": "false",
}  # fmt: skip
#: What the side `cpu` trains with in any case.
REFERENCE = {
    "training.precision": "fp32", "training.ranks": "1", "parallel.shard": "1", "training.compiled_layers": "false",
}  # fmt: skip
VARIANTS = {
    "fp32": Variant({}),
    "static batches": Variant({"batching.kind": "static"}),
    "no padding": Variant({"batching.padding_free": "true"}),
    "activation checkpointing": Variant({"training.activation_checkpointing": "true"}),
    "two micro-batches": Variant({"training.accumulation": "2"}),
    "averaged weights": Variant({"training.average_decay": "0.9"}),
    "clipping": Variant({"training.clip_norm": "0.1"}),
    "bf16": Variant({"training.precision": "bf16"}, HALF),
    "bf16, no padding": Variant({"training.precision": "bf16", "batching.padding_free": "true"}, HALF),
    "fp16": Variant({"training.precision": "fp16"}, HALF),
    "fp16, no padding": Variant({"training.precision": "fp16", "batching.padding_free": "true"}, HALF),
    **({} if missing_tool() else {"bf16, no padding, compiled layers": Variant(COMPILED, HALF)}),
    **({"two ranks": Variant({"training.ranks": "2"}), "two ranks, in shards": Variant(SHARDS)} if HOROVOD else {}),
}


def compare(scratch: Path, names: Sequence[str], end: float) -> tuple[str, list[str]]:
    """Train variants here and in fp32 on the CPU, until a time of the monotonic clock.

    Returns:
        A table, and what is wrong.
    """
    prepare(scratch, ROWS)
    on_cpu = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    with ThreadPoolExecutor(2) as threads:
        here = threads.submit(train_all, scratch, "here", names, dict(os.environ), end)
        there = threads.submit(train_all, scratch, "cpu", names, on_cpu, end)
    on_other_side = {name: f"on the CPU, {reason}" for name, reason in there.result().items()}
    return judge(scratch, names, {**on_other_side, **here.result()})


def train_all(
    scratch: Path, side: str, names: Sequence[str], environment: Mapping[str, str], end: float
) -> dict[str, str]:
    """Train variants one after the other; return why some of them have no losses, by name."""
    left, lost = list(names), dict[str, str]()
    while left:
        log = scratch / f"{side}-{len(left)}.log"
        with _training(scratch, side, left, environment, log) as process:
            while left and not (reason := _await(process, scratch / side / f"{left[0]}.json", end)):
                left.pop(0)
        if left:
            last_lines = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            lost[left.pop(0)] = f"{reason}:\n{last_lines}"
        if time.monotonic() > end:
            return lost | dict.fromkeys(left, NO_TIME)
    return lost


def _await(process: subprocess.Popen[bytes], file: Path, end: float) -> str:
    """Wait until a file is there, and return nothing, or until it will not come, and return why."""
    deadline = min(time.monotonic() + LIMIT, end)
    while time.monotonic() < deadline:
        ended = process.poll()
        if file.exists():
            return ""
        if ended is not None:
            return f"the training ended with exit code {ended}"
        time.sleep(0.05)
    return "the training took too long"


def prepare(scratch: Path, rows: int) -> None:
    """Write a small encoder without dropout, and rows to train it on."""
    write_encoder(scratch / "encoder", {**SMALL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    write_rows(scratch / "data" / "train", rows, SMALL["vocab_size"], seed=1)
    write_rows(scratch / "data" / "dev", BATCH, SMALL["vocab_size"], seed=2)


def judge(scratch: Path, names: Sequence[str], lost: Mapping[str, str]) -> tuple[str, list[str]]:
    """Compare the losses of trainings that are done; return a table, and what is wrong.

    Args:
        scratch: where the losses are.
        names: of the variants.
        lost: why some of them have no losses, by name.
    """
    lines, wrong = [], []
    for name in names:
        if name in lost:
            lines.append([name, "", "", "", "not compared"])
            wrong.append(f"{name}: {lost[name]}")
            continue
        found, expected = (json.loads((scratch / side / f"{name}.json").read_text()) for side in ("here", "cpu"))
        if None in found:  # JSON's NaN
            lines.append([name, str(len(found)), f"{expected[-1]:.4f}", "not finite", ""])
            wrong.append(f"{name}: the loss of step {found.index(None) + 1} is not finite")
            continue
        largest = max(abs(one - other) for one, other in zip(found, expected, strict=True))
        lines.append([name, str(len(found)), f"{expected[-1]:.4f}", f"{found[-1]:.4f}", f"{largest:.1e}"])
        if largest > VARIANTS[name].tolerance:
            wrong.append(f"{name}: a loss differs by {largest:.1e}, more than {VARIANTS[name].tolerance:.0e}")
    header = ("training", "steps", "last loss in fp32 on the CPU", "here", "largest difference of any step")
    return table(header, lines), wrong


@contextmanager
def _training(
    scratch: Path, side: str, names: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that trains variants, and is killed at the end."""
    command = [sys.executable, "-m", "benchmarks.gpu.losses", str(scratch), side, *names]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def main(scratch: Path, side: str, names: Sequence[str]) -> None:
    """Train the variants, those of the side `cpu` as REFERENCE has it, and leave the losses of each as VARIANT.json."""
    for name in names:
        fields = {**FIELDS, **VARIANTS[name].fields, **(REFERENCE if side == "cpu" else {})}
        output = scratch / side / name
        output.mkdir(parents=True)
        experiment = load("{}", [f"{key}={value}" for key, value in fields.items()])
        launch(Job(experiment, scratch / "encoder", scratch / "data", output))
        lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        write_json(scratch / side / f"{name}.json", losses)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
