"""What a step in bf16 on a CPU spends on what: `.venv/tasks/bin/python -m benchmarks.step_parts`.

It computes some operations by themselves, with the encoder's own shapes and the mean number of tokens of a batch, and
compares them with whole steps. So it tells about how much could be gained by doing one of them better. All times are
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

import torch
from torch import nn

from benchmarks.tables import table
from benchmarks.workload import BATCH, Workload, add_arguments, prepare
from tasks.encoder.dropout import Noise
from tasks.encoder.models import EncoderWithHead
from tasks.launching import tuning
from tasks.training.factory import build_trainer
from tasks.training.layers import layers_of
from tasks.training.loop import Trainer

WARMUP, STEPS, CALLS = 10, 100, 30
NARROW = torch.bfloat16
#: Of dropout, as BERT and MPNet have it.
RATE = 0.1


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
    print(_parts(seconds, _alone(trainer.model, tokens), tokens))


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


def _alone(model: EncoderWithHead, tokens: int) -> dict[str, float]:
    """Seconds of what a step computes for all layers together, by name."""
    layers = [part for layer in layers_of(model.encoder) for part in layer]
    linear = [module for layer in layers for module in layer.modules() if isinstance(module, nn.Linear)]
    weights = [module.weight.detach() for module in linear]
    values = {size: torch.randn(tokens, size).to(NARROW) for size in {n for weight in weights for n in weight.shape}}
    narrow = [weight.to(NARROW) for weight in weights]
    dense = [p.detach().clone().requires_grad_() for layer in layers for p in layer.parameters()]
    for parameter in dense:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(dense, fused=True)
    noise, hidden = Noise(), torch.Size((tokens, model.encoder.config.hidden_size))

    def products() -> None:
        for weight in narrow:
            outputs, inputs = (values[size] for size in weight.shape)
            inputs @ weight.t(), outputs @ weight, outputs.t() @ inputs  # forward, and backward to inputs and weight

    return {
        "matrix products of the linear layers": _time(products),
        "AdamW": _time(optimizer.step),
        "rounding the weights to bf16": _time(lambda: [weight.to(NARROW) for weight in weights]),
        "widening the weights' gradients to fp32": _time(lambda: [weight.float() for weight in narrow]),
        "norm of the gradient": _time(lambda: nn.utils.get_total_norm([p.grad for p in dense if p.grad is not None])),
        "dropout's noise for hidden states": _time(
            lambda: [noise.draw(hidden, RATE, NARROW) for _ in range(2 * len(layers))]
        ),
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
