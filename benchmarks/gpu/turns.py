"""Cases that take turns: each is a process that is loaded once, and measures a pass over the rows whenever it is told.

So a machine that slows down slows all of them, and a round compares cases that were measured seconds apart.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import IO

from benchmarks.gpu.cases import Case
from tasks.launching.launch import ROOT

READY = "ready"
LIMIT = 60.0  # seconds for a pass over the rows


@dataclass(frozen=True)
class Turn:
    """A pass over all rows.

    Attributes:
        rows: their number.
        seconds: it took.
        memory: the most that was in use during the pass, in bytes: allocated on a GPU, resident on a CPU.
    """

    rows: int
    seconds: float
    memory: int

    @property
    def rows_per_second(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


class Told:
    """The worker's side: it says that it is ready, and then measures as often as it is told."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what anybody prints goes to the log

    def __iter__(self) -> Iterator[None]:
        """Wait until the next turn, until there is none."""
        self._say(READY)
        for _ in sys.stdin:
            yield

    def answer(self, turn: Turn) -> None:
        """Tell what was measured."""
        self._say(json.dumps(dataclasses.asdict(turn)))

    def _say(self, line: str) -> None:
        self._answers.write(f"{line}\n")
        self._answers.flush()


class Worker:
    """A case's process."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        assert process.stdin and process.stdout
        self._process, self._log = process, log
        self._commands: IO[str] = process.stdin
        self._answers: IO[str] = process.stdout

    def await_ready(self, deadline: float) -> None:
        """Wait until it is ready. Raises RuntimeError if it fails, or is not by that time of the monotonic clock."""
        assert self._read(deadline) == READY

    def turn(self, deadline: float) -> Turn:
        """Let it measure once. Raises RuntimeError as await_ready does."""
        with suppress(BrokenPipeError):  # what has ended is found out below
            self._commands.write("go\n")
            self._commands.flush()
        return Turn(**json.loads(self._read(deadline)))

    def end(self) -> None:
        """Kill it and the processes that it has started, so that they take nothing from others."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read(self, deadline: float) -> str:
        seconds = max(0.0, deadline - time.monotonic())
        if not select([self._answers], [], [], seconds)[0]:
            raise RuntimeError(f"no answer within {seconds:.0f} seconds")
        line = self._answers.readline().rstrip("\n")
        if not line:
            log = self._log.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"the process ended with exit code {self._process.wait()}:\n{log[-4000:]}")
        return line


def with_one_gpu(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that names only the first of its GPUs: Trainer would divide its batches among all."""
    name = "CUDA_VISIBLE_DEVICES"
    return {**environment, name: environment.get(name, "0").partition(",")[0]}


@contextmanager
def worker(module: str, folder: Path) -> Iterator[Worker]:
    """A process of `python -m MODULE FOLDER`, which is ended with its children; its log is in the folder."""
    log = folder / "worker.log"
    command = [sys.executable, "-m", module, str(folder)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=with_one_gpu(os.environ), start_new_session=True, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    one = Worker(process, log)
    try:
        yield one
    finally:
        one.end()


def take_turns(
    cases: Sequence[Case], start: Callable[[Case], tuple[str, Path]], rounds: int, patience: float, end: float
) -> tuple[dict[str, list[Turn]], dict[str, str]]:
    """Measure the cases in turn. One that fails or takes too long is ended, and the others go on.

    Args:
        cases: what is measured.
        start: prepares a case; returns the module of its worker and the folder that it is given.
        rounds: how often; less often if there is no time for another round as long as the longest one.
        patience: seconds until all must be ready.
        end: a time of the monotonic clock, by which all is done.

    Returns:
        The rounds of every case that could be measured, and why the others could not, both by name.
    """
    lost: dict[str, str] = {}
    measured: dict[str, list[Turn]] = {}
    with ExitStack() as stack:
        workers = {case.name: stack.enter_context(worker(*start(case))) for case in cases}

        def attempt(name: str, work: Callable[[Worker], None]) -> None:
            try:
                work(workers[name])
            except RuntimeError as error:
                lost[name] = str(error)
                workers[name].end()

        def measure(name: str) -> None:
            deadline = min(time.monotonic() + LIMIT, end)
            attempt(name, lambda one: measured.setdefault(name, []).append(one.turn(deadline)))

        deadline, longest = min(time.monotonic() + patience, end), 0.0
        for name in workers:
            attempt(name, lambda one: one.await_ready(deadline))
        for _ in range(rounds):
            began = time.monotonic()
            if began + longest > end:
                break
            for name in [name for name in workers if name not in lost]:
                measure(name)
            longest = max(longest, time.monotonic() - began)
    lost |= {name: "there was no time left" for name in workers if name not in lost and name not in measured}
    return {name: turns for name, turns in measured.items() if name not in lost}, lost
