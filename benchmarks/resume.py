"""What kills cost a training, and what checkpoints do: `.venv/tasks/bin/python -m benchmarks.resume`.

Kills one training twenty times, at random moments and inside of checkpoints, compares it with one that was left
alone, and then writes checkpoints of two encoders' sizes. With --quick: two kills, and the small encoder alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from transformers import BertConfig, BertModel

from benchmarks.tables import table
from include.artifacts import write_json
from include.experiment import Experiment
from include.fields.ranks import Runtime
from tasks.encoder.loading import add_head
from tasks.training.checkpoint import Checkpoints, Snapshot
from tasks.training.job import Job, checkpoints
from tests.tasks.encoder.samples import reviews, tiny_encoder, write_split
from tests.tasks.launching.jobs import losses, make_job

#: Sizes of all-MiniLM-L6-v2 and of BERT-base; the weights are random.
ENCODERS: dict[str, Any] = {
    "MiniLM": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
    "BERT-base": {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072},
}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as scratch:
        _print_kills(Path(scratch), kills=2 if quick else 20, epochs=5 if quick else 100)
        header = ["encoder", "weights", "checkpoint, MB", "written in s, median of 3", "verified and read in s"]
        print(f"\n{table(header, [_cost(Path(scratch), name) for name in list(ENCODERS)[: 1 if quick else None]])}")


def _print_kills(root: Path, kills: int, epochs: int) -> None:
    tiny_encoder(root / "encoder", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    write_split(root / "data" / "train", *reviews(60, seed=1))
    write_split(root / "data" / "dev", *reviews(30, seed=2))
    whole, killed = _job(root, "whole", epochs), _job(root, "killed", epochs)
    _train(whole, [])
    moments = random.Random(0)
    attempts = _train(killed, [_kill(moments) for _ in range(kills)])
    befell = sum(attempt["code"] != 0 for attempt in attempts)
    rows = []
    for number, attempt in enumerate(attempts, 1):
        where = f"before call {attempt['calls']}" if attempt["calls"] else f"after {attempt['seconds']:.2f} s"
        inside = any(name.startswith(".step-") for name in attempt["left"])
        ending = where if attempt["code"] else "no: it ended well"
        rows.append([str(number), ending, str(attempt["began"]), "half a checkpoint" if inside else ""])
    print(table(["attempt", "killed", "began at step", "left behind"], rows))
    equal = losses(whole.output) == losses(killed.output) and _weights(whole) == _weights(killed)
    print(f"\n{befell} kills; every loss in metrics.jsonl and the model's weights are equal to the bit: {equal}")


def _kill(moments: random.Random) -> dict[str, float]:
    """Every other one just before a random call that changes the disk, the others at a random time."""
    return {"calls": moments.randint(1, 40)} if moments.random() < 0.5 else {"seconds": moments.uniform(0.1, 1)}


def _job(root: Path, name: str, epochs: int) -> Job:
    job = make_job(root, epochs=epochs, evaluations=1, patience=0)
    experiment = job.experiment.model_copy(update={"runtime": Runtime(checkpoint_steps=4)})
    return dataclasses.replace(job, experiment=experiment, checkpoints=root / name)


def _train(job: Job, kills: list[dict[str, float]]) -> list[dict[str, Any]]:
    plan = job.output / "plan.json"
    job.write(job.output / "job.json")
    write_json(plan, {"job": str(job.output / "job.json"), "kills": kills})
    command = [sys.executable, "-m", "tests.tasks.training.kills", str(plan)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    attempts: list[dict[str, Any]] = json.loads(plan.with_suffix(".done").read_text())
    return attempts


def _weights(job: Job) -> bytes:
    return (job.output / "model" / "model.safetensors").read_bytes()


def _cost(scratch: Path, name: str) -> list[str]:
    """The row of a checkpoint with weights, both of AdamW's moments and the best model."""
    folder = scratch / name
    encoder = BertModel(BertConfig(num_attention_heads=12, **ENCODERS[name]))
    model = add_head(encoder, Job(Experiment(), folder, folder, folder).head)
    model.save(folder / "model")
    weights = dict(model.named_parameters())
    moments = {f"{kind}.{key}": torch.rand_like(p) for key, p in weights.items() for kind in ("mean", "square")}
    hvd.init()
    try:
        written = Checkpoints(folder, 1, rank=0, best=folder / "model")
        snapshot = Snapshot({**weights, **moments}, {}, {})
        times = [_seconds(partial(written.write, step, snapshot)) for step in (1, 2, 3)]
        reading = _seconds(lambda: written.shared(written.newest({}), torch.device("cpu")))
    finally:
        hvd.shutdown()
    size = sum(file.stat().st_size for file in checkpoints(folder)[3].rglob("*")) / 1e6
    count = sum(p.numel() for p in weights.values()) / 1e6
    return [name, f"{count:.0f} M", f"{size:.0f}", f"{statistics.median(times):.1f}", f"{reading:.1f}"]


def _seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


if __name__ == "__main__":
    main()
