"""Starting the ranks of a training, and reporting how they ended."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from include import tracing
from include.scratch import scratch_folder
from include.stages import BadInput, ExitCode, Stopped, Transient
from tasks import digests
from tasks.launching.driver import LOST
from tasks.launching.layouts import advise, with_ranks
from tasks.launching.rank import JOB, ORIGIN, STOP, train
from tasks.launching.tuning import threads
from tasks.training.job import METRICS, PROFILES, Job, checkpoints

log = logging.getLogger(__name__)

#: The prefix that Horovod's launcher on Spark adds to a rank's lines. Only rank 0 logs more than errors: it is removed.
_RANK_PREFIX = re.compile(r"^\[\d+\]<std(?:out|err)>:", re.MULTILINE)

ROOT = Path(__file__).parents[2]
FRUITLESS = 3  # a training ends after this many losses of a rank without a new checkpoint between them
#: A silent rank must not stop the others forever, but a rank that writes a checkpoint is silent for a while: in two
#: minutes, the 1.8 GB of an encoder with 109 million weights reach a disk of 15 MB/s. Ranks that share memory notice a
#: frozen one after these two minutes, and others after the 30 seconds of Gloo. One that has ended is noticed at once.
LIMITS = {
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "30",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "60",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120",
    "HOROVOD_SPARK_START_TIMEOUT": "300",  # until the executors run all ranks at once
}
#: The engine's buckets are large enough. Horovod would fuse those that are ready, and all would wait for the last.
UNFUSED = {"HOROVOD_FUSION_THRESHOLD": "0"}


class LostRank(Transient):
    """A rank was lost, or did not answer in time."""


class Paused(Stopped):
    """A training has paused where it was asked to."""

    def __init__(self, job: Job) -> None:
        *_, last = (job.folder / METRICS).read_text(encoding="utf-8").splitlines()
        scored = json.loads(last)
        self.folder, self.step, details = job.folder, int(scored["step"]), ("step", "epoch", "time")
        numbers = {name: value for name, value in scored.items() if not isinstance(value, dict)}
        self.metrics: dict[str, float | None] = {name: numbers[name] for name in numbers if name not in details}
        super().__init__(f"training has paused after step {self.step}: run the stage again, and it goes on from there")


def launch(job: Job, profiles: Path | None = None) -> None:
    """Train with the experiment's ranks: one in this process, more in processes of their own, here or on Spark.

    The profile that runtime.profile asks for is copied to the folder `profiles`. Raise Transient if a rank was lost and
    runtime.lost_rank does not let training continue, Stopped if a signal stopped it, after a checkpoint, and Paused.
    """
    shared = Path(tempfile.gettempdir())  # where this process and its ranks see the same files
    if job.experiment.runtime.ranks_on == "spark":
        shared = job.folder
        shared.mkdir(parents=True, exist_ok=True)
    with scratch_folder(shared, "spark-bert-ranks") as folder:
        with _signals_make(folder / STOP):
            settled = _settled(job, folder)
            try:
                if not (folder / STOP).exists():
                    _train_to_the_end(settled, folder)
            except LostRank as lost:
                raise Transient(f"{lost}: run the stage again") from lost
        if profiles and job.experiment.runtime.profile != "none":
            _keep_profile(folder / PROFILES[job.experiment.runtime.profile], profiles)
        if not (job.output / "training.json").exists():
            if not (folder / STOP).exists():
                raise Paused(job)
            raise Stopped("training was stopped: run the stage again, and it continues from its last checkpoint")
    advise(job)


def _settled(job: Job, folder: Path) -> Job:
    """Return the job with a number of ranks. Raise BadInput if that needs Horovod, and there is none."""
    gpus = 0
    if job.training.ranks == "auto":
        from tasks.training.device import usable_gpus  # imports torch, which takes seconds

        gpus = usable_gpus()
    job = with_ranks(job, gpus, folder, _train_apart)
    if job.uses_horovod and find_spec("horovod") is None:
        raise BadInput(
            "a training of several ranks, or with a parameter server, needs Horovod, which is not installed: "
            "run `make setup`, or write training.ranks: 1 and communication.strategy: all-reduce"
        )
    return job


def _keep_profile(file: Path, profiles: Path) -> None:
    """Copy the profile into the folder, in place of an earlier one; if it cannot be kept, log why."""
    if not file.is_file():
        log.warning("no profile was recorded: training stopped before the profiled steps, or Horovod exchanged nothing")
        return
    temporary = profiles / f".{file.name}.{os.getpid()}"
    try:
        profiles.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, temporary)
        temporary.replace(profiles / file.name)
    except OSError as error:  # no reason to fail a training that is done
        with suppress(OSError):
            temporary.unlink()
        log.warning("the profile cannot be kept in %s: %s", profiles, error)
    else:
        log.info("the profile is %s: open it in https://ui.perfetto.dev", profiles / file.name)


def _train_to_the_end(job: Job, folder: Path) -> None:
    """Train, and start again from the last checkpoint when a rank is lost, unless that leads nowhere."""
    ranks, policy = job.ranks, job.experiment.runtime.lost_rank
    reached, fruitless = max(checkpoints(job.folder), default=0), 0
    while True:
        try:
            return _train(job, folder, ranks)
        except LostRank as lost:
            began, reached = reached, max(checkpoints(job.folder), default=0)
            fruitless = 0 if reached > began else fruitless + 1
            if policy == "fail" or fruitless == FRUITLESS or (folder / STOP).exists():
                raise
            if policy == "shrink":
                ranks -= 1
            log.warning("%s: training starts again from step %d, ranks: %d", lost, reached, ranks)


def _train(job: Job, folder: Path, ranks: int) -> None:
    if ranks == 1:
        train(job, folder / STOP)
        return
    digests.settle()  # the ranks read within seconds, and train for hours
    tracing.hand_over(folder / ORIGIN)
    try:
        _train_apart(job, folder, ranks)
    finally:
        for file in sorted(folder.glob("rank-*.jsonl")):
            tracing.take_over(file)  # where training starts again, the ranks write others


def _train_apart(job: Job, folder: Path, ranks: int) -> None:
    """Train on ranks in processes of their own, which use a folder. Raise what they raised, or LostRank."""
    job.write(folder / JOB)
    (folder / LOST).unlink(missing_ok=True)
    if _run_driver(str(folder), ranks):
        _explain(folder)


@contextmanager
def _signals_make(file: Path) -> Iterator[None]:
    """Let SIGTERM and SIGINT create the file, which ranks watch; a second signal has its former effect."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
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
    # The stage's own stdout is for its result line.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment(ranks)
    )
    assert process.stdin and process.stdout
    try:
        # In pieces of what the ranks log, because a progress bar does not end its line.
        while piece := os.read(process.stdout.fileno(), 65536):
            sys.stderr.write(_RANK_PREFIX.sub("", piece.decode(errors="replace")))
            sys.stderr.flush()
        return process.wait()
    finally:
        process.stdin.close()  # ends the ranks if they still run
        process.wait()


def _environment(ranks: int) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **LIMITS, **UNFUSED, "OMP_NUM_THREADS": str(threads(ranks)), "PYTHONPATH": path}


def _explain(folder: Path) -> None:
    """Raise the error that a rank has written, else name the rank that was lost first."""
    errors = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("rank-*.json"))]
    if errors:
        rank, code, message = errors[0]["rank"], errors[0]["exit_code"], errors[0]["message"]
        if code == ExitCode.BAD_INPUT:  # all ranks raise the same
            raise BadInput(message)
        if code == ExitCode.TRANSIENT:
            raise Transient(message if rank is None else f"rank {rank}: {message}")
        raise RuntimeError(f"rank {rank} failed:\n{message}")
    if not (folder / LOST).is_file():
        raise LostRank("the ranks' driver ended without an explanation; its last lines are above")
    lost = json.loads((folder / LOST).read_text(encoding="utf-8"))
    if lost["exit_code"] == ExitCode.TRANSIENT:
        raise LostRank(f"rank {lost['rank']} got no answer from another rank")
    raise LostRank(f"rank {lost['rank']} was lost (exit code {lost['exit_code']})")
