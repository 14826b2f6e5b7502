"""Our engine's worker: `python -m tests.benchmarks.gpu.engine FOLDER`, where job.json lies."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

import torch

from tasks.launching.heap import keep_freed_memory
from tasks.launching.rank import JOB
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tasks.training.loop import Trainer
from tasks.training.meter import memory
from tests.benchmarks.gpu.turns import Told, Turn

LONG_ENOUGH = 5.0  # seconds of warm-up


class ExchangingJob(Job):
    """A job whose only rank uses Horovod's exchange, so that it compresses, although nobody receives anything."""

    @property
    def uses_horovod(self) -> bool:
        """True."""
        return True


def main(folder: Path) -> None:
    """Measure as often as told."""
    keep_freed_memory()
    job = Job.read(folder / JOB)
    if job.experiment.communication.compression != "none":
        import horovod.torch as hvd

        hvd.init()
        job = ExchangingJob(**{field.name: getattr(job, field.name) for field in dataclasses.fields(job)})
    trainer = build_trainer(job, stopping=lambda: False)
    one_pass(trainer, LONG_ENOUGH)
    told = Told()
    for _ in told:
        told.answer(one_pass(trainer))


def one_pass(trainer: Trainer, at_most: float = float("inf")) -> Turn:
    """Train on all rows once, or for so many seconds."""
    trainer.sampler.load_state_dict({"done": 0})
    rows, began = 0, start(trainer.device)
    for batch in trainer.sampler:
        trainer.step(batch)
        rows += batch.rows
        if time.perf_counter() - began > at_most:
            break
    trainer.meter.read()  # it keeps the loss of every step until then
    return finish(trainer.device, rows, began)


def start(device: torch.device) -> float:
    """Begin a pass; return the time."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    return time.perf_counter()


def finish(device: torch.device, rows: int, began: float) -> Turn:
    """End a pass that began at a time, when the device has computed everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return Turn(rows, time.perf_counter() - began, memory(device))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
