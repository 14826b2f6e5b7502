"""Our engine's worker: `python -m benchmarks.gpu.engine FOLDER`, where job.json lies."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from benchmarks.gpu.passes import finish, start, warming_up
from benchmarks.gpu.turns import Told, Turn
from tasks.launching.launch import UNFUSED
from tasks.launching.rank import JOB
from tasks.launching.tuning import keep_freed_memory
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tasks.training.loop import Trainer

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

        os.environ.update(UNFUSED)
        hvd.init()
        job = ExchangingJob(**{field.name: getattr(job, field.name) for field in dataclasses.fields(job)})
    trainer = build_trainer(job, stopping=lambda: False)
    compiles = job.training.compiled_layers  # for so long that the others cannot wait for it
    with nullcontext() if compiles else warming_up(folder):
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
