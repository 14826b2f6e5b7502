"""One rank of a training: Horovod starts it in a process of its own.

Imports what is heavy in its functions: the stage and Horovod's launcher name them without running them.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path

from include.artifacts import write_json
from include.stages import ExitCode, StageError
from tasks.engine.job import Job

JOB = "job.json"


def train(job: Job) -> None:
    """Train in this process, as the rank that Horovod says it is: the only one, unless Horovod started it."""
    import horovod.torch as hvd

    from tasks.engine.loop import Trainer

    hvd.init()
    try:
        Trainer(job).run()
    finally:
        hvd.shutdown()


def run_rank(folder: str) -> None:
    """Train as told by job.json in the folder; leave there, as rank-<n>.json, why it could not be done."""
    from horovod.common.exceptions import HorovodInternalError

    rank = int(os.environ["HOROVOD_RANK"])
    level = logging.WARNING if rank else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        train(Job.read(Path(folder, JOB)))
    except HorovodInternalError:
        sys.exit(ExitCode.TRANSIENT)  # another rank is gone; that one is the news
    except Exception as error:
        code = error.exit_code if isinstance(error, StageError) else None
        text = str(error) if isinstance(error, StageError) else traceback.format_exc()
        write_json(Path(folder, f"rank-{rank}.json"), {"rank": rank, "exit_code": code, "message": text})
        sys.exit(code or 1)
