"""What a step in bf16 on a CPU spends on what: `.venv/tasks/bin/python -m benchmarks.step_parts`.

It times some parts by themselves, with the encoder's own shapes and the mean number of tokens of a batch, and compares
them with whole steps: the rest are the layers' other operations, Python, and what prepares batches. All times are
processor times of one thread, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from torch import nn

from benchmarks.tables import table
from benchmarks.workload import BATCH, Workload, add_arguments, prepare
from tasks.encoder.fused_layer import fused_linears
from tasks.launching import tuning
from tasks.training.factory import build_trainer
from tasks.training.loop import Trainer

WARMUP, STEPS, CALLS = 10, 100, 30
NARROW = torch.bfloat16
RATE = 1e-9  # of learning, for steps that are only timed


def main() -> None:
    """Prepare the data, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    tuning.keep_freed_memory()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        steps = 2 if arguments.quick else STEPS
        trainer = _trainer(prepare(arguments, Path(name)).with_rows(steps * BATCH), Path(name))
        seconds, tokens = _steps(trainer, steps)
    print(_parts(seconds, _alone(trainer, tokens), tokens))


def _trainer(workload: Workload, scratch: Path) -> Trainer:
    job = workload.job(scratch / "output", "training.ranks=1", "training.precision=bf16")
    return build_trainer(job, stopping=lambda: False)


def _steps(trainer: Trainer, count: int) -> tuple[float, int]:
    """The mean processor time of a step, and the mean number of tokens of its batch, with padding."""
    batches = list(itertools.islice(trainer.sampler, count))
    for batch in batches[:WARMUP]:
        trainer.step(batch)
    start = time.process_time()
    for batch in batches:
        trainer.step(batch)
    seconds = (time.process_time() - start) / len(batches)
    return seconds, round(statistics.mean(trainer.inputs(batch).input_ids.numel() for batch in batches))


def _alone(trainer: Trainer, tokens: int) -> dict[str, float]:
    """Seconds of parts of a step by themselves, by name."""
    model, batch = trainer.model, next(iter(trainer.sampler))
    linear = fused_linears(model).values()
    weights = [module.weight.detach().to(NARROW) for module in linear]
    values = {size: torch.randn(tokens, size).to(NARROW) for size in {n for weight in weights for n in weight.shape}}
    trainer.exchange.begin_step(1, 1.0, stop=False)
    trainer.compute_gradients(batch)
    trainer.exchange.synchronize_gradients()
    ids, embeddings = trainer.inputs(batch).input_ids, cast(nn.Module, model.encoder.embeddings)

    def products() -> None:
        for weight in weights:
            outputs, inputs = (values[size] for size in weight.shape)
            inputs @ weight.t(), outputs @ weight, outputs.t() @ inputs  # forward, and backward to inputs and weight

    def embed() -> None:
        hidden = embeddings(ids)
        torch.autograd.grad(hidden, list(embeddings.parameters()), torch.ones_like(hidden))

    return {
        "matrix products of the linear layers": _time(products),
        "embeddings": _time(embed),
        "norm of the gradient": _time(trainer.exchange.norm),
        "AdamW, with that of rows and rounding to bf16": _time(lambda: trainer.optimizer.step(RATE, divisor=1.0)),
    }


def _parts(step: float, alone: dict[str, float], tokens: int) -> str:
    rows = {"a step": step, **alone, "everything else": step - sum(alone.values())}
    header = (f"{BATCH} rows with {tokens} tokens on average", "processor time, ms", "share of a step, %")
    return table(header, [(name, f"{1000 * part:.1f}", f"{100 * part / step:.1f}") for name, part in rows.items()])


def _time(call: Callable[[], object]) -> float:
    """The mean processor time of a call, in seconds."""
    call()
    start = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - start) / CALLS


if __name__ == "__main__":
    main()
