"""One rank of a training: the only one, in the stage's process, or `python -m tasks.launching.rank FOLDER`.

Heavy packages are imported in functions, because the stage and the driver import this module without running a rank.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from include import tracing
from include.artifacts import locked, write_json
from include.logs import configure
from include.stages import ExitCode, StageError
from tasks import digests
from tasks.launching import tuning
from tasks.training.job import Job

if TYPE_CHECKING:
    from tasks.training.loop import Trainer

JOB, STOP, ORIGIN, SPEED = "job.json", "stop", "origin.json", "speed.json"
WARMUP = 4  # steps before those that are timed: the first ones meet the first call of everything
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def train(job: Job, stop: Path) -> None:
    """Train as the only rank or the one of this process until the file `stop` appears. Profiles go to its folder."""
    from tasks.communication import ranks
    from tasks.training.factory import build_trainer

    tuning.tune_heap(divided=job.experiment.parallel.ranks > 1)
    if "HOROVOD_RANK" not in os.environ:  # the launcher sets OMP_NUM_THREADS for other ranks
        tuning.limit_threads()
    with (
        _horovod(job) if job.uses_horovod else nullcontext(),
        locked(job.folder) if ranks.rank() == 0 else nullcontext(),
    ):
        with tracing.span("load"):
            trainer = build_trainer(job, stop.exists, stop.parent)
            digests.settle()  # hours of work do not depend on files that are not read any more
        if job.timed_steps:
            time_steps(trainer, stop.parent / SPEED)
            return
        with tracing.span("training", rank=trainer.layout.rank, ranks=trainer.layout.world):
            try:
                trainer.run()
            finally:
                trainer.phases.record()


def time_steps(trainer: Trainer, file: Path) -> None:
    """Take the first steps of a training, whose rows do not depend on the ranks, and write the rows per second.

    If the training is to stop, nothing is written.
    """
    rows, started = 0, 0.0
    for batch in islice(trainer.sampler, WARMUP + trainer.job.timed_steps):
        if batch.step == WARMUP + 1:
            started = time.monotonic()
        if trainer.step(batch):
            return
        rows += batch.rows if batch.step > WARMUP else 0
    trainer.exchange.receive_parameters()
    if trainer.layout.leads:
        write_json(file, rows / (time.monotonic() - started))


@contextmanager
def _horovod(job: Job) -> Iterator[None]:
    import horovod.torch as hvd

    if job.experiment.runtime.profile == "horovod":
        os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"  # allows to begin one later
        os.environ[tuning.CACHE] = "0"  # for a tensor that it remembers, Horovod records no negotiation
    copy, hierarchical = job.experiment.parallel.ranks, job.experiment.communication.strategy == "hierarchical"
    grouped = 1 < copy < job.ranks or hierarchical  # see Layout, Hosts
    # With process sets, a rank that has lost another one is aborted when Horovod shuts down.
    hvd.init(process_sets="dynamic" if grouped else None)
    try:
        with _mesh() if copy > 1 else nullcontext():
            yield
    finally:
        hvd.shutdown()


@contextmanager
def _mesh() -> Iterator[None]:
    from tasks.training.parallel.divide import disconnect, lost_ranks_told

    try:
        with lost_ranks_told():
            yield
    finally:
        disconnect()


def run_rank(folder: str, secret: str = "") -> None:
    """Train as job.json says, or write the error to rank-<n>.json; on Spark, `secret` is that of the rendezvous."""
    from tasks.launching import rendezvous
    from tasks.training.device import usable_gpus

    rank, job = int(os.environ["HOROVOD_RANK"]), Job.read(Path(folder, JOB))
    level = logging.WARNING if rank or job.timed_steps else logging.INFO
    origin = tracing.Origin.read(Path(folder, ORIGIN)) if Path(folder, ORIGIN).is_file() else None
    configure(level, origin)
    spans = tracing.recording(Path(folder, f"rank-{rank}.jsonl"), origin, f"rank {rank}") if origin else nullcontext()
    with errors_written(Path(folder)), spans:
        if secret:
            rendezvous.tell(secret)
        tuning.set_cycle(usable_gpus())
        train(job, Path(folder, STOP))


@contextmanager
def errors_written(folder: Path) -> Iterator[None]:
    """Exit with the code of an error, which is written to rank-<n>.json in a folder."""
    from horovod.common.exceptions import HorovodInternalError

    try:
        yield
    except HorovodInternalError:
        sys.exit(ExitCode.TRANSIENT)  # another rank was lost; the launcher reports that one
    except Exception as error:
        rank, (code, message) = int(os.environ["HOROVOD_RANK"]), _describe(error)
        write_json(folder / f"rank-{rank}.json", {"rank": rank, "exit_code": code, "message": message})
        sys.exit(code)


def _describe(error: Exception) -> tuple[int, str]:
    """Return exit code and message; the message of an unexpected error is its traceback."""
    if isinstance(error, StageError):
        return error.exit_code, str(error)
    if isinstance(error, OSError):
        return ExitCode.TRANSIENT, str(error)
    return 1, traceback.format_exc()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a driver that is killed cannot end its ranks
    gc.set_threshold(10_000, 100, 1000)  # as tasks/__main__.py does for a single rank, and says why
    run_rank(sys.argv[1])
    gc.freeze()
