"""One rank of a training: Horovod starts it in a process of its own.

Imports what is heavy in its functions: the stage and Horovod's launcher name them without running them.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

from include.artifacts import locked, write_json
from include.stages import ExitCode, StageError
from tasks.launching.machine import threads
from tasks.training.job import Job

JOB, STOP = "job.json", "stop"


def train(job: Job, stop: Path) -> None:
    """Train in this process, as the rank that Horovod says it is: the only one, unless Horovod started it.

    As soon as there is a file `stop`, save a checkpoint and return.
    """
    import horovod.torch as hvd
    import torch

    from tasks.training.factory import build_trainer

    keep_freed_memory()
    if "HOROVOD_RANK" not in os.environ:  # others were told by OMP_NUM_THREADS
        torch.set_num_threads(min(torch.get_num_threads(), threads(ranks=1)))  # torch knows affinity, but no quota
    sets = "dynamic" if job.experiment.communication.strategy == "hierarchical" else None  # see Hosts
    hvd.init(process_sets=sets)
    try:
        with locked(job.folder) if hvd.rank() == 0 else nullcontext():
            build_trainer(job, stop.exists).run()
    finally:
        hvd.shutdown()


def run_rank(folder: str) -> None:
    """Train as told by job.json in the folder; leave there, as rank-<n>.json, why it could not be done."""
    from horovod.common.exceptions import HorovodInternalError

    rank = int(os.environ["HOROVOD_RANK"])
    level = logging.WARNING if rank else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        train(Job.read(Path(folder, JOB)), Path(folder, STOP))
    except HorovodInternalError:
        sys.exit(ExitCode.TRANSIENT)  # another rank is gone; that one is the news
    except Exception as error:
        code, message = _describe(error)
        write_json(Path(folder, f"rank-{rank}.json"), {"rank": rank, "exit_code": code, "message": message})
        sys.exit(code)


def _describe(error: Exception) -> tuple[int, str]:
    """Exit code and message: a person's words where there are some, else the traceback."""
    if isinstance(error, StageError):
        return error.exit_code, str(error)
    if isinstance(error, OSError):
        return ExitCode.TRANSIENT, str(error)
    return 1, traceback.format_exc()


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks: a step frees and needs the same ones, and each fresh page costs a fault.

    A step of MiniLM takes about a tenth less CPU time. Other C libraries have no mallopt, and no such habit.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        mmap_max, trim_threshold = -4, -1  # M_MMAP_MAX and M_TRIM_THRESHOLD of malloc.h
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)
