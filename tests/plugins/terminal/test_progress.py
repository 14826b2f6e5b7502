"""What the terminal shows while a run is under way."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress

from include.artifacts import write_json
from include.runs import Run
from spark_bert.deployment.places import run_folder
from spark_bert.terminal.progress import Display, Event, Listener

STEP = "2026-11-22 07:00:00,000 INFO INFO tasks.training.metrics_logger: step 30 of 120, epoch 0.25: loss 0.61"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "runs" / "one")
    run.folder.mkdir(parents=True)
    failed = {"key": "", "exit_code": 75, "message": "no space left"}
    write_json(run.file, {"run": "one", "stages": {"predict": failed}})
    return run


@pytest.fixture
def bar() -> Progress:
    return Progress(console=Console(file=io.StringIO()), disable=True)


@pytest.fixture
def lines() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def shown(bar: Progress, lines: io.StringIO) -> Display:
    return Display(Console(file=lines), bar)


def _moved(bar: Progress) -> tuple[float, float | None]:
    (task,) = bar.tasks
    return task.completed, task.total


def test_a_training_moves_its_bar(shown: Display, bar: Progress, run: Run) -> None:
    shown.logged(STEP)  # of a stage that has ended
    shown.show(Event(run.folder, "train", running=True))
    assert _moved(bar) == (0, None)
    shown.logged("2026-11-22 07:00:00,000 INFO INFO tasks.runner: 5 of 1,200 rows share their text")
    assert _moved(bar) == (0, None)
    shown.logged(STEP)
    assert _moved(bar) == (30, 120)


def test_a_stage_that_ended_leaves_a_line_and_no_bar(
    shown: Display, bar: Progress, lines: io.StringIO, run: Run
) -> None:
    shown.show(Event(run.folder, "predict", running=True))
    shown.show(Event(run.folder, "predict"))
    assert bar.tasks == []
    assert lines.getvalue() == "predict          0 s  no space left\n"


def test_a_stage_that_could_not_start_shows_airflows_reason_and_no_time(
    shown: Display, lines: io.StringIO, run: Run
) -> None:
    shown.show(Event(run.folder, "predict", running=True))
    shown.show(Event(run.folder, "predict"))
    shown.show(Event(run.folder, "export", reason="there is no image"))
    assert lines.getvalue().splitlines()[-1] == "export                there is no image"


def test_a_refusal_is_explained_by_the_summary_alone(shown: Display, lines: io.StringIO, run: Run) -> None:
    refused = {"key": "1", "exit_code": 2, "message": "the data cannot be used"}
    write_json(run.file, {"run": "one", "stages": {"validate": refused}})
    shown.show(Event(run.folder, "validate", running=True))
    shown.show(Event(run.folder, "validate"))
    assert lines.getvalue() == "validate         0 s  failed\n"


def test_a_record_that_contradicts_airflow_is_not_shown(shown: Display, lines: io.StringIO, run: Run) -> None:
    shown.show(Event(run.folder, "predict", succeeded=True))  # its record is that of an earlier try
    assert lines.getvalue() == "predict               done\n"


def test_events_are_sent_for_stages_alone() -> None:
    sent: list[Event] = []
    listener = Listener(sent.append)
    stage = SimpleNamespace(task_id="pipeline.train", dag_id="finetune", run_id="manual__1")
    listener.on_task_instance_running(stage)
    listener.on_task_instance_failed(stage, ValueError("too bad"))
    listener.on_task_instance_success(SimpleNamespace(task_id="announce", dag_id="finetune", run_id="manual__1"))
    folder = run_folder("finetune", "manual__1")
    assert sent == [Event(folder, "train", running=True), Event(folder, "train", reason="too bad")]
