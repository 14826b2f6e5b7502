"""Cases that take turns: each is a process that is loaded once, and measures a pass over the rows whenever it is told.

So a machine that slows down slows all of them, and a round compares cases that were measured seconds apart.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import IO

from tasks.launching.launch import ROOT
from tests.benchmarks.gpu.cases import Case

READY = "ready"


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

    def is_ready(self, deadline: float) -> bool:
        """Wait until it is ready or that time of the monotonic clock. Raises RuntimeError when it has failed."""
        if not select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        return self._read() == READY

    def turn(self) -> Turn:
        """Let it measure once. Raises RuntimeError when it fails."""
        self._commands.write("go\n")
        self._commands.flush()
        return Turn(**json.loads(self._read()))

    def _read(self) -> str:
        line = self._answers.readline().rstrip("\n")
        if not line:
            log = self._log.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"the process ended with exit code {self._process.wait()}:\n{log[-4000:]}")
        return line


@contextmanager
def worker(module: str, folder: Path) -> Iterator[Worker]:
    """A process of `python -m MODULE FOLDER`, which is killed at the end; its log is in the folder."""
    log = folder / "worker.log"
    command = [sys.executable, "-m", module, str(folder)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        yield Worker(process, log)
    finally:
        process.kill()
        process.communicate()


def take_turns(
    cases: Sequence[Case], start: Callable[[Case], tuple[str, Path]], rounds: int, patience: float
) -> tuple[dict[str, list[Turn]], dict[str, str]]:
    """Measure the cases in turn.

    Args:
        cases: what is measured.
        start: prepares a case; returns the module of its worker and the folder that it is given.
        rounds: how often.
        patience: seconds until all must be ready.

    Returns:
        The rounds of every case that could be measured, and why the others could not, both by name.
    """
    lost: dict[str, str] = {}
    with ExitStack() as stack:
        workers = {case.name: stack.enter_context(worker(*start(case))) for case in cases}
        deadline = time.monotonic() + patience
        for name, one in workers.items():
            try:
                if not one.is_ready(deadline):
                    lost[name] = f"was not ready after {patience:.0f} seconds"
            except RuntimeError as error:
                lost[name] = str(error)
        measured: dict[str, list[Turn]] = {name: [] for name in workers if name not in lost}
        for _ in range(rounds):
            for name in [name for name in measured if name not in lost]:
                try:
                    measured[name].append(workers[name].turn())
                except RuntimeError as error:
                    lost[name] = str(error)
    return {name: turns for name, turns in measured.items() if name not in lost}, lost
