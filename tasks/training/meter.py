"""Measuring a training: loss, rows per second, padding, bytes received, memory, times of phases, and profiles."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from include import tracing
from tasks.communication.exchange import Kind
from tasks.communication.ranks import sum_over_ranks
from tasks.communication.state import State
from tasks.encoder.batching import Batch
from tasks.training.job import PROFILES, Job
from tasks.training.sampler import RankBatch

log = logging.getLogger(__name__)
PROFILED, WARMUP = 5, 2  # steps that are profiled, and that torch's profiler needs before them
ALONE = "a single rank exchanges nothing: write torch"
IN_MEMORY = "the ranks share memory: write torch, or communication.compression: fp16, with which they use Horovod"
#: Returns a context in which a training takes this number of steps. Its value is to be called after each of them.
Profiler = Callable[[int], AbstractContextManager[Callable[[], None]]]


class Totals:
    """Sums over all ranks since the start of the training, up to the last reading of a Meter."""

    def __init__(self, kinds: list[Kind], spent: float) -> None:
        self.rows, self.seconds = 0, spent  # without evaluations and checkpoints
        self.tokens, self.places = 0.0, 0.0  # places are tokens and padding together
        self.bytes: dict[Kind, int] = dict.fromkeys(kinds, 0)  # that this rank has received
        self.bytes_before = self.bytes  # the part of them that earlier processes of this training received

    def state_dict(self) -> dict[str, float]:
        """Return the sums by name. Only the time may differ between ranks."""
        sums = {"rows": self.rows, "seconds": self.seconds, "tokens": self.tokens, "places": self.places}
        return {**sums, **{f"bytes_{kind}": count for kind, count in self.bytes.items()}}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Replace the sums."""
        self.rows, self.seconds = int(state["rows"]), state["seconds"]
        self.tokens, self.places = state["tokens"], state["places"]
        self.bytes = self.bytes_before = {kind: int(state[f"bytes_{kind}"]) for kind in self.bytes}


class Meter:
    """Measures a training between two readings, which sum over the ranks: all read at the same time."""

    def __init__(
        self,
        received: Callable[[], dict[Kind, int]],  # the bytes that this process has received so far
        spent: float = 0,  # seconds that the training has taken before its first step
        counts: bool = True,  # whether this rank counts its rows; of several that compute the same ones, one does
    ) -> None:
        self.totals = Totals(list(received()), spent)
        self._received, self._counts = received, counts
        self._clock = time.monotonic()
        self._recent: list[tuple[torch.Tensor, int, int]] = []
        self._recent_rows: list[int] = []
        self._last: dict[str, float | torch.Tensor] = {}

    def count(self, batch: Batch, loss: torch.Tensor, places: int | None = None) -> None:
        """Count a micro-batch, its part of the batch's mean loss, and its tokens with padding (`places`)."""
        places = batch.places if places is None else places
        self._recent.append((loss.detach(), int(batch.attention_mask.sum()), places))

    def end_step(self, batch: RankBatch, norm: float | torch.Tensor, rate: float) -> None:
        """Count a step, with the norm of its gradient and its learning rate."""
        self._recent_rows.append(batch.rows)
        self._last = {"learning_rate": rate, "grad_norm": norm}

    def read(self) -> dict[str, float]:
        """Return the metrics since the last reading: means, and learning rate and gradient norm of the last step."""
        losses, tokens, places = zip(*self._recent, strict=True)
        own = [float(torch.stack(losses).double().sum()), float(sum(tokens)), float(sum(places))]
        loss, all_tokens, all_places = sum_over_ranks(own if self._counts else [0.0, 0.0, 0.0], "meter")
        seconds = time.monotonic() - self._clock
        rows, steps = sum(self._recent_rows), len(self._recent_rows)
        totals, bytes_now = self.totals, self._received_so_far()
        totals.rows, totals.seconds = totals.rows + rows, totals.seconds + seconds
        totals.tokens, totals.places = totals.tokens + all_tokens, totals.places + all_places
        received = {f"bytes_{kind}": round((now - totals.bytes[kind]) / steps) for kind, now in bytes_now.items()}
        totals.bytes = bytes_now
        self._recent, self._recent_rows, self._clock = [], [], time.monotonic()
        speed = {"rows_per_second": round(rows / seconds, 1), "padding_share": _padding(all_tokens, all_places)}
        last = {name: float(value) for name, value in self._last.items()}
        return {"loss": loss / steps, **last, **speed, **received}

    def state_dict(self) -> State:
        """Return what this rank has measured since the last reading."""
        losses = [loss for loss, _, _ in self._recent]
        return {
            "losses": torch.stack(losses) if losses else torch.zeros(0),
            "counts": torch.tensor([counts for _, *counts in self._recent]).view(-1, 2),
            "rows": torch.tensor(self._recent_rows, dtype=torch.int64),
            "bytes": torch.tensor(list(self._received_so_far().values())),
        }

    def load_state_dict(self, state: State) -> None:
        """Replace what this rank has measured since the last reading."""
        counts = zip(state["losses"], state["counts"].tolist(), strict=True)
        self._recent = [(loss, tokens, places) for loss, (tokens, places) in counts]
        self._recent_rows = state["rows"].tolist()
        self.totals.bytes_before = dict(zip(self.totals.bytes, state["bytes"].tolist(), strict=True))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time that passes within the context as training time."""
        started = time.monotonic()
        yield
        self._clock += time.monotonic() - started

    def summary(self) -> dict[str, float]:
        """Return the throughput and the share of padding of the whole training, up to the last reading."""
        return {
            "rows_per_second": round(self.totals.rows / self.totals.seconds, 1),
            "padding_share": _padding(self.totals.tokens, self.totals.places),
            "seconds": round(self.totals.seconds, 1),
        }

    def _received_so_far(self) -> dict[Kind, int]:
        return {kind: self.totals.bytes_before[kind] + count for kind, count in self._received().items()}


def _padding(tokens: float, places: float) -> float:
    return round(1 - tokens / places, 4)


def memory(device: torch.device) -> int:
    """Return the peak memory of this rank in bytes: resident on a CPU, allocated by torch on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Linux passes the peak of getrusage on to a process that is started, which would have its parent's from the first.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return int(status["VmHWM"].removesuffix("kB")) * 1024


def memory_use(device: torch.device) -> dict[str, int]:
    """Return "memory" and, on a GPU, "memory_reserved": the most that torch has reserved there, in bytes."""
    reserved = {"memory_reserved": torch.cuda.max_memory_reserved(device)} if device.type == "cuda" else {}
    return {"memory": memory(device), **reserved}


class Phase:
    """A phase, which is entered as a context as often as it takes place, at the cost of two clock readings."""

    def __init__(self) -> None:
        self.seconds, self.count = 0.0, 0
        self.began = self.ended = self._entered = 0.0

    def __enter__(self) -> None:
        self._entered = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.ended = time.perf_counter()
        self.began = self.began or self._entered
        self.seconds += self.ended - self._entered
        self.count += 1


class Phases:
    """The time of each phase on this rank, as a sum over the steps of this process."""

    # On a GPU, it counts where Python waits next. What is sent during the backward pass counts as backward.

    def __init__(self) -> None:
        self.steps = self.rows = 0
        self.data, self.forward, self.backward = Phase(), Phase(), Phase()
        self.exchange, self.optimizer = Phase(), Phase()
        self.evaluation, self.checkpoint = Phase(), Phase()

    def end_step(self, rows: int) -> None:
        """Count a step, and its rows on all ranks."""
        self.steps += 1
        self.rows += rows

    def record(self) -> None:
        """Record each phase as a span from its first beginning to its last end."""
        epoch = time.time() - time.perf_counter()
        for name, phase in vars(self).items():
            if isinstance(phase, Phase) and phase.count:
                start, end = (round((epoch + moment) * 1e9) for moment in (phase.began, phase.ended))
                seconds, count = round(phase.seconds, 4), phase.count
                tracing.add(name, start, end, seconds=seconds, count=count, steps=self.steps, rows=self.rows)


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
    count = max(1, min(PROFILED, steps))
    return max(0, steps - count) // 2, count
