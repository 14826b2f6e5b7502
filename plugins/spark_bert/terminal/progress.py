"""The progress of a run on a terminal: a bar for the stage at work, and one line for each that has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from airflow.listeners import hookimpl
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from include.logs import PROGRESS
from include.runs import Run
from include.stages import STAGES, ExitCode
from spark_bert.deployment.places import run_folder, run_name
from spark_bert.terminal.summary import outcome

_WIDTH = 12


class Event(NamedTuple):
    """The start or the end of a stage, or the end of a run."""

    folder: Path  # the run's
    stage: str = ""  # "" if the whole run has ended
    running: bool = False  # whether the stage has started
    succeeded: bool = False
    reason: str = ""  # why it has not succeeded, in Airflow's words


class Listener:
    """A listener of Airflow that sends an event whenever a stage starts or ends, to the process with the terminal."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self._send = send

    @hookimpl
    def on_task_instance_running(self, task_instance: Any) -> None:
        """Airflow calls this before the operator."""
        self._send_event(task_instance, running=True)

    @hookimpl
    def on_task_instance_success(self, task_instance: Any) -> None:
        """Airflow calls this after the operator."""
        self._send_event(task_instance, succeeded=True)

    @hookimpl
    def on_task_instance_failed(self, task_instance: Any, error: object) -> None:
        """Airflow calls this after each try that failed, also if the operator could not start."""
        self._send_event(task_instance, reason=str(error))

    def _send_event(self, task_instance: Any, **what: Any) -> None:
        stage = task_instance.task_id.rpartition(".")[2]
        if stage in STAGES:
            self._send(Event(run_folder(task_instance.dag_id, run_name(task_instance)), stage, **what))


class Display:
    """Shows stages, one at a time. If the output is not a terminal, it only prints the lines of ended stages."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self._console, self._bar = console, bar
        self._task: TaskID | None = None
        self._began: float | None = None  # while a stage is at work

    def show(self, event: Event) -> None:
        """Show a bar for a stage that has started, or the line of one that has ended."""
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        if event.running:
            self._began = time.monotonic()
            self._task = self._bar.add_task(f"{event.stage:{_WIDTH}}", total=None)
        else:
            took = "" if self._began is None else _duration(time.monotonic() - self._began)
            line = Text(f"{event.stage:{_WIDTH}}{took:>8}  ").append(_outcome(event), "" if event.succeeded else "red")
            self._console.print(line, soft_wrap=True)
            self._began = None

    def logged(self, line: str) -> None:
        """Move the bar if a line of the stage's log tells the progress."""
        match = PROGRESS.search(line)
        if match and self._task is not None:
            self._bar.update(self._task, completed=int(match[1]), total=int(match[2]))


@contextmanager
def display() -> Iterator[Display]:
    """Show the progress of a run on stdout until the block ends."""
    console = Console(highlight=False)
    columns = (TextColumn("{task.description}"), TimeElapsedColumn(), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield Display(console, bar)


def _outcome(event: Event) -> str:
    """Describe how a stage has ended: in its own words if its record agrees with the event, or else in Airflow's."""
    entry = Run(event.folder).record()["stages"].get(event.stage)
    if entry and event.succeeded == (entry["exit_code"] == 0):
        if entry["exit_code"] in (ExitCode.BAD_INPUT, ExitCode.GATE_FAILED):  # the run ends, and its summary says why
            return "failed"
        return outcome(event.stage, entry)
    return "done" if event.succeeded else event.reason


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} min" if minutes else f"{rest} s"
