"""Two tries of one task on a real engine: who stops whose container, and what becomes of a task cleared as it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_bert.operators.failures import Interrupted
from tests.e2e.docker.base_image import BASE
from tests.e2e.docker.watch import Container, remaining, watched
from tests.e2e.docker.worker import Worker
from tests.e2e.server import wait_for

pytestmark = pytest.mark.long

#: Stands in for a training: it ends when a file is there; when it is stopped, it takes a while to save.
STAGE = f"""
FROM {BASE}
RUN printf '%s\\n' 'cd "$SPARK_BERT_HOME/artifacts"' 'trap "sleep 2; date +%s.%N >saved; exit 143" TERM' \\
    'until ls go; do sleep 0.2; done' 'echo {{}}' >/stage
ENTRYPOINT ["sh", "/stage"]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    build = ["docker", "build", "--quiet", "--tag", "spark-bert-ownership/train:latest", "-"]
    subprocess.run(build, input=STAGE, text=True, check=True, stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SPARK_BERT_IMAGES", "spark-bert-ownership")
    monkeypatch.setenv("SPARK_BERT_TAG", "latest")
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    yield tmp_path
    for container in remaining(tmp_path):
        subprocess.run(["docker", "rm", "--force", container], check=False, stdout=subprocess.DEVNULL)


class Try:
    """A try under way in a thread: what it returns or raises in the end."""

    def __init__(self, **keywords: Any) -> None:
        self._worker = Worker("train")
        self._ending: list[object] = []
        self._thread = threading.Thread(target=self._run, kwargs=keywords)
        self._thread.start()

    def _run(self, **keywords: Any) -> None:
        try:
            self._ending.append(self._worker(**keywords))
        except Exception as error:
            self._ending.append(error)

    @property
    def name(self) -> str:
        """Of the container that it asks for."""
        wait_for(lambda: hasattr(self._worker.operator, "name"), seconds=30)
        assert self._worker.operator
        return self._worker.operator.name

    def kill(self) -> None:
        """What Airflow does on SIGTERM."""
        assert self._worker.operator
        self._worker.operator.on_kill()

    def ending(self) -> object:
        self._thread.join(60)
        return self._ending[0]


def running(name: str) -> bool:
    """Whether a container of this name runs."""
    found = ["docker", "ps", "--quiet", "--filter", f"name=^/{name}$"]
    return bool(subprocess.run(found, capture_output=True, check=True).stdout)


def test_a_stale_try_does_not_stop_its_successors_container(home: Path) -> None:
    first = Try()
    wait_for(lambda: running(first.name), seconds=30)
    second = Try()
    wait_for(lambda: running(second.name), seconds=30)
    first.kill()
    assert running(second.name)
    (home / "artifacts/go").touch()
    assert second.ending() == {} and isinstance(first.ending(), Interrupted)
    assert remaining(home) == []


def test_a_task_that_is_cleared_as_it_runs_starts_afresh_when_the_old_container_has_ended(home: Path) -> None:
    with watched(home) as started:
        first = Try()
        wait_for(lambda: running(first.name), seconds=30)
        stop = threading.Thread(target=first.kill)
        stop.start()
        wait_for(lambda: running(f"{first.name}.ending"), seconds=30)
        second = Try()
        wait_for(lambda: running(second.name), seconds=30)
        (home / "artifacts/go").touch()
        assert second.ending() == {} and isinstance(first.ending(), Interrupted)
        stop.join()
    assert (home / "artifacts/saved").exists() and len(started) == 2
    assert created(started[1]) > created(started[0]) and remaining(home) == []


def test_a_deployment_may_keep_containers_when_a_worker_is_shut_down(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes where Airflow's worker gets it: in the main thread, which waits for the stage's log."""
    monkeypatch.setenv("SPARK_BERT_ON_SHUTDOWN", "keep")
    first = Worker("train")

    def kill(*_: object) -> None:
        assert first.operator
        first.operator.on_kill()

    before = signal.signal(signal.SIGTERM, kill)
    shutdown = threading.Thread(target=shut_down_when_running, args=[first])
    shutdown.start()
    try:
        with pytest.raises(Interrupted, match="keeps running, and the next try attaches to it"):
            first()
    finally:
        signal.signal(signal.SIGTERM, before)
        shutdown.join()
    assert first.operator and running(first.operator.name)
    (home / "artifacts/go").touch()
    with watched(home) as started:
        assert Worker("train")() == {}
    assert started == [] and remaining(home) == []


def shut_down_when_running(worker: Worker) -> None:
    wait_for(lambda: worker.operator and running(getattr(worker.operator, "name", "none")), seconds=30)
    os.kill(os.getpid(), signal.SIGTERM)


def created(container: Container) -> str:
    return str(container["Created"])
