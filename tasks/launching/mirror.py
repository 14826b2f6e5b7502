"""What a training's driver and its ranks exchange through a store where they have no folder in common.

A rank works in a folder of its own, with copies of what it reads. It puts its part of each checkpoint into the store
(StagedCheckpoints), and at its end everything else that it has made; metrics.jsonl follows every few seconds. The
driver brings all of it to where ranks on its own machine would have written it, and tells the ranks to stop.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from include.artifacts import locked
from include.scratch import scratch_folder
from include.stages import BadInput, Transient
from tasks.launching.rank import JOB, ORIGIN, STOP, errors_written, run_rank
from tasks.staging import STAGING, Staging, below, fetched, remove, repeating, sizes, transfer
from tasks.training.checkpoint import VALUES, Checkpoints, seal
from tasks.training.job import METRICS, SPLITS, Job
from tasks.training.training_state import identity

SECONDS = 2  # between two looks at what the other side has put
#: What the ranks make, besides METRICS and the checkpoints: the output, what else their folder on the driver's machine
#: would hold, and a file of each rank that has fetched what it reads. And what the driver makes: the file STOP.
OUTPUT, FOLDER, READY, TOLD = "output", "folder", "ready", f"told/{STOP}"
CHECKPOINTS = "checkpoints"  # in the folder of a rank
#: Seconds that a rank waits for others, which fetch the same files: one that is lost meanwhile does not say so.
_PATIENCE = 600
_OF_CHECKPOINT = re.compile(r"step-(\d+)/(.+)")


@dataclass(frozen=True)
class Places:
    """The addresses of what the ranks read, and of the folder for what they make."""

    folder: str  # with job.json and origin.json
    encoder: str
    data: str
    teacher: str  # "" if there is none
    checkpoint: str  # from which the training continues, or ""
    made: str


@contextmanager
def shared_with_ranks(staged: Staging, job: Job, folder: Path) -> Iterator[Places]:
    """Share what the ranks read, and collect what they make until they have ended. `folder` is that of the ranks."""
    if job.experiment.parallel.ranks > 1:
        raise BadInput(
            "ranks that divide a model (parallel.tensor, pipeline and shard) meet in a folder, but on a cluster with "
            f"{STAGING} they have none in common: write 1 for all three, or runtime.ranks_on: local"
        )
    with locked(job.folder):
        step = Checkpoints(job.folder, every=0, rank=0, best=job.folder).newest(identity(job))
        places = Places(
            staged.share(folder),
            staged.share(job.encoder),
            staged.share(job.data, [job.data / split for split in SPLITS]),
            staged.share(job.teacher) if job.teacher else "",
            staged.share(job.folder / f"step-{step}") if step else "",
            staged.address_of(job.output),
        )
        try:
            with repeating(lambda: _collect(places.made, job, folder), SECONDS):
                yield places
        finally:
            _collect_all(places.made, job, folder)


def _collect(made: str, job: Job, folder: Path) -> None:
    found = sizes(made)
    if TOLD not in found and (folder / STOP).exists():
        transfer(str(folder / STOP), below(made, TOLD))
    here = job.folder / METRICS
    if METRICS in found and not (here.exists() and here.stat().st_size == found[METRICS]):
        fresh = here.with_name(f".{METRICS}")
        transfer(below(made, METRICS), str(fresh))
        fresh.replace(here)
    steps = {int(match[1]): match[2] == VALUES for name in sorted(found) if (match := _OF_CHECKPOINT.fullmatch(name))}
    complete = max((step for step, whole in steps.items() if whole), default=0)
    if complete:
        fresh = job.folder / f".step-{complete}"
        shutil.rmtree(fresh, ignore_errors=True)
        transfer(below(made, f"step-{complete}"), str(fresh))
        seal(fresh, job.folder / f"step-{complete}")
        for step in steps:
            if step <= complete:
                remove(below(made, f"step-{step}"))


def _collect_all(made: str, job: Job, folder: Path) -> None:
    _collect(made, job, folder)
    found = sizes(made)
    if any(name.startswith(f"{FOLDER}/") for name in found):
        transfer(below(made, FOLDER), str(folder))
    if f"{OUTPUT}/training.json" in found:
        transfer(below(made, OUTPUT), str(job.output))


def run_staged_rank(places: Places, secret: str) -> None:
    """Train as one rank as `run_rank` does, in an executor that has no folder in common with the driver."""
    with scratch_folder(Path.cwd(), "spark-bert-rank") as folder:
        try:
            with errors_written(folder):
                job = _prepare(places, folder)
                _wait_for_all(places.made, folder)
            leads = os.environ["HOROVOD_RANK"] == "0"
            with repeating(lambda: _exchange(places.made, job, folder), SECONDS) if leads else nullcontext():
                run_rank(str(folder), secret)
        finally:
            _put_all(places.made, folder)


def _prepare(places: Places, folder: Path) -> Job:
    """Write the job of this rank into its folder."""
    executor = Path.cwd()  # the folder of the executor, whose ranks share what one of them has fetched
    shared = fetched(places.folder, executor)
    if (shared / ORIGIN).exists():
        shutil.copyfile(shared / ORIGIN, folder / ORIGIN)
    job = replace(
        Job.read(shared / JOB),
        encoder=fetched(places.encoder, executor),
        data=fetched(places.data, executor),
        teacher=fetched(places.teacher, executor) if places.teacher else None,
        output=folder / OUTPUT,
        checkpoints=folder / CHECKPOINTS,
        address=places.made,
    )
    job.output.mkdir()
    job.folder.mkdir()
    if places.checkpoint:
        copy = fetched(places.checkpoint, executor)
        shutil.copytree(copy, job.folder / copy.name, copy_function=os.link)
    job.write(folder / JOB)
    return job


def _wait_for_all(made: str, folder: Path) -> None:
    """Wait until all ranks have fetched what they read: then they meet, and Gloo waits for seconds only."""
    ready, deadline = folder / f"rank-{os.environ['HOROVOD_RANK']}", time.monotonic() + _PATIENCE
    ready.touch()
    transfer(str(ready), below(made, f"{READY}/{ready.name}"))
    ready.unlink()
    while (others := len(sizes(below(made, READY)))) < int(os.environ["HOROVOD_SIZE"]):
        if time.monotonic() > deadline:
            raise Transient(f"only {others} ranks could fetch the encoder and the data within {_PATIENCE} seconds")
        time.sleep(SECONDS / 10)


def _exchange(made: str, job: Job, folder: Path) -> None:
    found, metrics = sizes(made), job.folder / METRICS
    if TOLD in found:
        (folder / STOP).touch()
    if metrics.exists() and metrics.stat().st_size != found.get(METRICS):
        transfer(str(metrics), below(made, METRICS))


def _put_all(made: str, folder: Path) -> None:
    for file in folder.iterdir():
        if file.is_file() and file.name not in (JOB, ORIGIN, STOP):
            transfer(str(file), below(made, f"{FOLDER}/{file.name}"))
    if (folder / CHECKPOINTS / METRICS).exists():
        transfer(str(folder / CHECKPOINTS / METRICS), below(made, METRICS))
    if (folder / OUTPUT / "training.json").exists():
        transfer(str(folder / OUTPUT), below(made, OUTPUT))
