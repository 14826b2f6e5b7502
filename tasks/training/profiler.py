"""Profiles: what happens within a few steps in the middle of a training, as a file that Perfetto opens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from tasks.training.job import PROFILES, Job

log = logging.getLogger(__name__)
STEPS, WARMUP = 5, 2  # that are recorded, and that torch's profiler needs before them
ALONE = "a single rank exchanges nothing: write torch"
IN_MEMORY = "the ranks share memory: write torch, or communication.compression: fp16, with which they use Horovod"


class Profiler:
    """Records nothing."""

    def over(self, steps: int) -> AbstractContextManager[None]:
        """Return a context in which a training takes this number of steps."""
        return nullcontext()

    def step(self) -> None:
        """Count a step, and begin or end the recording where that is due."""


class TorchProfiler(Profiler):
    """Records the operations of torch on this rank."""

    def __init__(self, file: Path, device: torch.device) -> None:
        self._file = file
        self._activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]

    @contextmanager
    def over(self, steps: int) -> Iterator[None]:
        """Record the steps in the middle, and write them as soon as they are done."""
        first, count = middle(steps)
        warmup = min(WARMUP, first)
        when = schedule(wait=first - warmup, warmup=warmup, active=count, repeat=1)
        with profile(
            activities=self._activities,
            schedule=when,
            on_trace_ready=lambda done: done.export_chrome_trace(str(self._file)),
        ) as self._profile:
            yield

    def step(self) -> None:
        """Begin or end the recording where that is due."""
        self._profile.step()


class HorovodTimeline(Profiler):
    """Records how long tensors wait for the other ranks and travel. All ranks take part, and rank 0 writes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._done = 0

    @contextmanager
    def over(self, steps: int) -> Iterator[None]:
        """Record the steps in the middle."""
        self._first, count = middle(steps)
        self._end = self._first + count
        self._begin_or_end()
        yield
        if self._first <= self._done < self._end:  # the training stopped within these steps
            self._done = self._end
            self._begin_or_end()

    def step(self) -> None:
        """Begin or end the recording where that is due."""
        self._done += 1
        self._begin_or_end()

    def _begin_or_end(self) -> None:
        import horovod.torch as hvd

        if self._done == self._first:
            hvd.start_timeline(str(self._file), mark_cycles=True)
        elif self._done == self._end:
            hvd.stop_timeline()


def middle(steps: int) -> tuple[int, int]:
    """Return how many of the steps come before the recorded ones, and how many are recorded, at least one."""
    count = max(1, min(STEPS, steps))
    return max(0, steps - count) // 2, count


def build_profiler(job: Job, folder: Path | None, rank: int, device: torch.device, shares_memory: bool) -> Profiler:
    """Build what records the profile that runtime.profile asks for, into a folder if there is one.

    `shares_memory` says whether all ranks exchange gradients in shared memory, of which Horovod knows nothing.
    """
    kind = job.experiment.runtime.profile
    if kind == "none" or folder is None:
        return Profiler()
    if kind == "torch":
        return TorchProfiler(folder / PROFILES[kind], device) if rank == 0 else Profiler()
    if job.uses_horovod and not shares_memory:
        return HorovodTimeline(folder / PROFILES[kind])
    if rank == 0:
        log.warning("runtime.profile horovod has no effect, because %s", IN_MEMORY if shares_memory else ALONE)
    return Profiler()
