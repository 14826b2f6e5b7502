"""Profiles: what happens within a few steps in the middle of a training, as a file that Perfetto opens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from tasks.training.job import PROFILES, Job

log = logging.getLogger(__name__)
STEPS, WARMUP = 5, 2  # that are recorded, and that torch's profiler needs before them
ALONE = "a single rank exchanges nothing: write torch"
IN_MEMORY = "the ranks share memory: write torch, or communication.compression: fp16, with which they use Horovod"
#: Returns a context in which a training takes this number of steps. Its value is to be called after each of them.
Profiler = Callable[[int], AbstractContextManager[Callable[[], None]]]


def build_profiler(job: Job, folder: Path | None, rank: int, device: torch.device, shares_memory: bool) -> Profiler:
    """Build what records the profile that runtime.profile asks for, into a folder if there is one."""
    kind = job.experiment.runtime.profile
    if kind == "none" or folder is None:
        return _nothing
    if kind == "torch":
        return partial(_operations, file=folder / PROFILES[kind], device=device) if rank == 0 else _nothing
    if job.uses_horovod and not shares_memory:
        return partial(_timeline, file=folder / PROFILES[kind])
    if rank == 0:
        log.warning("runtime.profile horovod has no effect, because %s", IN_MEMORY if shares_memory else ALONE)
    return _nothing


@contextmanager
def _nothing(steps: int) -> Iterator[Callable[[], None]]:
    yield lambda: None


@contextmanager
def _operations(steps: int, file: Path, device: torch.device) -> Iterator[Callable[[], None]]:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    first, count = middle(steps)
    warmup = min(WARMUP, first)
    when = schedule(wait=first - warmup, warmup=warmup, active=count, repeat=1)
    write = partial(profile.export_chrome_trace, path=str(file))
    with profile(activities=activities, schedule=when, on_trace_ready=write) as recorder:
        yield recorder.step


@contextmanager
def _timeline(steps: int, file: Path) -> Iterator[Callable[[], None]]:
    """Record how long tensors wait for the other ranks and travel. All ranks take part, and rank 0 writes."""
    import horovod.torch as hvd

    first, count = middle(steps)
    done = -1

    def step() -> None:
        nonlocal done
        done += 1
        if done == first:
            hvd.start_timeline(str(file), mark_cycles=True)
        elif done == first + count:
            hvd.stop_timeline()

    step()  # the first step may be one that is recorded
    yield step
    if first <= done < first + count:  # the training stopped before the last of them
        hvd.stop_timeline()


def middle(steps: int) -> tuple[int, int]:
    """Return how many of the steps come before the recorded ones, and how many are recorded, at least one."""
    count = max(1, min(STEPS, steps))
    return max(0, steps - count) // 2, count
