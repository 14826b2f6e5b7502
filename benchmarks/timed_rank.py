"""One rank of a timed training: `python -m benchmarks.timed_rank FOLDER`, where job.json and timing.json lie.

It calls the engine's own step on the engine's own shares, and leaves out what a training does between steps: scoring,
checkpoints and the lines of metrics.jsonl.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import horovod.torch as hvd
import torch

from benchmarks.gpu.passes import synchronize
from benchmarks.links import LOCAL, bytes_sent, limit
from include.artifacts import write_json
from tasks.communication import all_reduce, shared_memory
from tasks.communication.all_reduce import AllReduce
from tasks.launching import tuning
from tasks.launching.rank import JOB
from tasks.training.device import usable_gpus
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tasks.training.loop import Trainer
from tasks.training.meter import Phase, memory

TIMING = "timing.json"


@dataclass(frozen=True)
class Timing:
    """What is measured.

    Attributes:
        warmup: steps before the measured ones, on the same rows; they meet the first call of everything.
        steps: that are measured, from the first batch on, or fewer when the data are used up.
        interface: that the rank sends through.
        rates: of that interface, in bit/s, one after the other; None: no limit. The loopback has none.
        shared: whether ranks of one host may share memory.
        overlaps: whether gradients are sent while the backward pass still runs, as the engine does, or after it.
    """

    warmup: int
    steps: int
    interface: str = "lo"
    rates: tuple[int | None, ...] = (None,)
    shared: bool = True
    overlaps: bool = True


@dataclass(frozen=True)
class Measurement:
    """Some steps of one rank.

    Attributes:
        rows: of all ranks.
        seconds: each step took.
        sent: bytes that the engine says it received from the other ranks, by kind.
        on_interface: bytes that the interface says it sent, of all processes.
        parameters: of the model, their number.
        memory: the most that the process has held so far, in bytes: resident on a CPU, allocated on a GPU.
        reserved: the most that torch has reserved on a GPU, in bytes.
        phases: seconds of all steps together, by phase, in the order of a step.
    """

    rows: int
    seconds: list[float]
    sent: dict[str, int]
    on_interface: int
    parameters: int
    memory: int
    reserved: int
    phases: dict[str, float]

    @property
    def rows_per_second(self) -> float:
        """Rows of all ranks per second."""
        return self.rows / sum(self.seconds)


class AfterBackward(AllReduce):
    """An all-reduce that sends no gradient before the backward pass has ended."""

    def sync_next_backward(self) -> None:
        """Do nothing yet."""

    def synchronize_gradients(self) -> bool:
        """Send all gradients, in the order in which the backward pass has reached them, and wait for the sums."""
        super().sync_next_backward()
        for parameter in reversed(self.parameters.values()):
            self._send(parameter)
        return super().synchronize_gradients()


def main(folder: Path) -> None:
    """Measure at every rate, and leave that in the folder as measured-<rank>.json."""
    timing = Timing(**json.loads((folder / TIMING).read_text(encoding="utf-8")))
    job = Job.read(folder / JOB)
    tuning.tune_heap(divided=job.experiment.parallel.ranks > 1)
    if not timing.shared:
        shared_memory.FOLDER = "/dev/null"  # no folder, and nobody can make it one
    if not timing.overlaps:
        all_reduce.AllReduce = AfterBackward  # type: ignore[misc]
    if timing.interface == LOCAL.interface:
        tuning.set_cycle(usable_gpus())  # as the launcher's own ranks
    hvd.init()
    # One for all: the hooks on its parameters keep a trainer's memory.
    trainer = build_trainer(job, stopping=lambda: False, scratch=folder)
    measured = []
    for rate in timing.rates:
        if timing.interface != LOCAL.interface:
            limit(timing.interface, rate)
        _steps(trainer, timing.warmup, timing.interface)
        measured.append(dataclasses.asdict(_steps(trainer, timing.steps, timing.interface)))
    write_json(folder / f"measured-{hvd.rank()}.json", {"rates": measured})
    hvd.shutdown()


def _steps(trainer: Trainer, count: int, interface: str) -> Measurement:
    """The training's first steps, whatever came before."""
    trainer.sampler.load_state_dict({"done": 0})
    sent, on_interface, spent = trainer.exchange.bytes_received(), bytes_sent(interface), _phases(trainer)
    rows, ends = 0, [time.perf_counter()]
    for share in itertools.islice(trainer.sampler, count):
        trainer.step(share)
        rows += share.rows
        ends.append(time.perf_counter())
    trainer.exchange.receive_parameters()
    synchronize(trainer.device)
    ends[-1] = time.perf_counter()
    return Measurement(
        rows,
        [end - start for start, end in itertools.pairwise(ends)],
        {kind: number - sent[kind] for kind, number in trainer.exchange.bytes_received().items()},
        bytes_sent(interface) - on_interface,
        sum(parameter.numel() for parameter in trainer.model.parameters()),
        memory(trainer.device),
        torch.cuda.max_memory_reserved() if trainer.device.type == "cuda" else 0,
        {name: seconds - spent[name] for name, seconds in _phases(trainer).items()},
    )


def _phases(trainer: Trainer) -> dict[str, float]:
    return {name: phase.seconds for name, phase in vars(trainer.phases).items() if isinstance(phase, Phase)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
