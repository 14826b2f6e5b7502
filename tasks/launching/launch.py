"""Starting a training's ranks, and saying what became of them."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from include.scratch import scratch_folder
from include.stages import BadInput, ExitCode, Stopped, Transient
from tasks.launching.driver import LOST
from tasks.launching.machine import threads, with_ranks
from tasks.launching.rank import JOB, STOP, train
from tasks.training.job import Job, checkpoints

log = logging.getLogger(__name__)

#: What Horovod's launcher puts before a rank's lines. Only rank 0 logs more than errors, so nothing is lost.
_RANK_PREFIX = re.compile(r"^\[\d+\]<std(?:out|err)>:", re.MULTILINE)

ROOT = Path(__file__).parents[2]
FRUITLESS = 3  # losses of a rank without a new checkpoint since the one before, that end a training
#: A rank that says nothing must not stop the others for ever. One that writes a checkpoint is silent for a while: in
#: two minutes, 1.8 GB (of 109 million weights) get to a disk that takes 15 MB/s.
LIMITS = {
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "30",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "60",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120",
    "HOROVOD_SPARK_START_TIMEOUT": "300",  # until executors run all ranks at once
}
#: The engine's buckets are large enough. Horovod would join those that are ready: all would arrive with the last one.
UNFUSED = {"HOROVOD_FUSION_THRESHOLD": "0"}


class LostRank(Transient):
    """A rank is gone, or silent."""


def launch(job: Job) -> None:
    """Train with the experiment's ranks: one in this process, more in processes of their own, here or on Spark.

    training.ranks auto is settled here, on the machine that trains: one for each GPU, without any one.

    A lost rank is met as runtime.lost_rank says. Raises BadInput as a rank did; Transient, naming the rank, when one
    is lost for good; Stopped when SIGTERM or SIGINT ended it, after a checkpoint.
    """
    job = with_ranks(job, _gpus() if job.training.ranks == "auto" else 0)
    with scratch_folder(_where_ranks_see_it(job), "spark-bert-ranks") as folder:
        with _signals_make(folder / STOP):
            try:
                _train_to_the_end(job, folder)
            except LostRank as lost:
                raise Transient(f"{lost}: run the stage again") from lost
        if (folder / STOP).exists() and not (job.output / "training.json").exists():
            raise Stopped("training was stopped: run the stage again, and it goes on from its last checkpoint")


def _gpus() -> int:
    import torch  # the stage's process needs it for nothing else, unless it trains by itself

    return torch.cuda.device_count()


def _where_ranks_see_it(job: Job) -> Path:
    """Where to put what this process and its ranks tell one another."""
    if job.experiment.runtime.ranks_on == "local":
        return Path(tempfile.gettempdir())
    job.folder.mkdir(parents=True, exist_ok=True)
    return job.folder


def _train_to_the_end(job: Job, folder: Path) -> None:
    """Train, and start again from the last checkpoint when a rank is lost, unless that leads nowhere."""
    ranks, policy = job.ranks, job.experiment.runtime.lost_rank
    reached, fruitless = _newest(job), 0
    while True:
        try:
            return _train(job, folder, ranks)
        except LostRank as lost:
            began, reached = reached, _newest(job)
            fruitless = 0 if reached > began else fruitless + 1
            if policy == "fail" or fruitless == FRUITLESS or (folder / STOP).exists():
                raise
            if policy == "shrink":
                ranks -= 1
            log.warning("%s: training starts again from step %d, ranks: %d", lost, reached, ranks)


def _newest(job: Job) -> int:
    return max(checkpoints(job.folder), default=0)


def _train(job: Job, folder: Path, ranks: int) -> None:
    if ranks == 1:
        train(job, folder / STOP)
        return
    job.write(folder / JOB)
    (folder / LOST).unlink(missing_ok=True)
    if _run_driver(str(folder), ranks):
        _explain(folder)


@contextmanager
def _signals_make(file: Path) -> Iterator[None]:
    """SIGTERM and SIGINT make the file, for the ranks to see; a second signal does what it did before."""
    if threading.current_thread() is not threading.main_thread():  # the only one that may handle signals
        yield
        return

    def make(number: int, frame: FrameType | None) -> None:
        file.touch()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, make)
    try:
        yield
    finally:
        restore()


def _run_driver(folder: str, ranks: int) -> int:
    command = [sys.executable, "-m", "tasks.launching.driver", folder, str(ranks)]
    # stdout belongs to the stage's result line
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment(ranks)
    )
    assert process.stdin and process.stdout
    try:
        _pass_on(process.stdout.fileno())
        return process.wait()
    finally:
        process.stdin.close()  # ends the ranks, should they still run
        process.wait()


def _pass_on(ranks: int) -> None:
    """What the ranks log, as they log it: in pieces, since a progress bar ends no line."""
    while piece := os.read(ranks, 65536):
        sys.stderr.write(_RANK_PREFIX.sub("", piece.decode(errors="replace")))
        sys.stderr.flush()


def _environment(ranks: int) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **LIMITS, **UNFUSED, "OMP_NUM_THREADS": str(threads(ranks)), "PYTHONPATH": path}


def _explain(folder: Path) -> None:
    """Raise what the ranks left behind: an error's own words, else which one went first."""
    errors = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("rank-*.json"))]
    if errors:
        rank, code, message = errors[0]["rank"], errors[0]["exit_code"], errors[0]["message"]
        if code == ExitCode.BAD_INPUT:  # which all ranks find alike
            raise BadInput(message)
        if code == ExitCode.TRANSIENT:
            raise Transient(message if rank is None else f"rank {rank}: {message}")
        raise RuntimeError(f"rank {rank} failed:\n{message}")
    if not (folder / LOST).is_file():
        raise LostRank("Horovod's launcher ended without a word, its last lines are above")
    lost = json.loads((folder / LOST).read_text(encoding="utf-8"))
    if lost["exit_code"] == ExitCode.TRANSIENT:
        raise LostRank(f"rank {lost['rank']} had no answer from another rank")
    raise LostRank(f"rank {lost['rank']} was lost (exit code {lost['exit_code']})")
