"""The Docker engine is restarted under a training: one of its own, so that the machine's goes on."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker.errors
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from docker.api import APIClient

from tests.e2e.docker.base_image import BASE
from tests.e2e.docker.worker import Worker
from tests.e2e.server import wait_for

pytestmark = pytest.mark.long

#: Stands in for a training: it ends when it is told to, or when a file is there.
STAGE = f"""
FROM {BASE}
ENTRYPOINT ["sh", "-c", "trap 'exit 143' TERM; until ls $SPARK_BERT_HOME/artifacts/go; do sleep 1; done; echo {{}}"]
"""


class Engine:
    """A dockerd beside the machine's, in a network of its own: with no bridge to make it removes the other's."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.url = f"unix://{folder}/docker.sock"
        places = ("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid")
        network = ("--bridge", "none", "--iptables=false", "--ip-forward=false")
        spaces = (
            "--containerd-namespace",
            "spark-bert-restart",
            "--containerd-plugins-namespace",
            "spark-bert-plugins",
        )
        self._command = ["unshare", "--net", "dockerd", "--host", self.url, *places, *network, *spaces, *options]
        self._log = folder / "log"

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        wait_for(self._answers, seconds=60)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=120)

    @property
    def client(self) -> APIClient:
        return APIClient(base_url=self.url, version="auto")

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            return bool(self.client.ping())
        except docker.errors.DockerException:
            return False


@pytest.fixture
def engine_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Engine]]:
    """Start an engine with these options; it holds the image of the training."""
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path / "home"))
    engines: list[Engine] = []

    def make(*options: str) -> Engine:
        engine = Engine(tmp_path, *options)
        engines.append(engine)
        engine.start()
        saved = f"docker save {BASE} | docker --host {engine.url} load"
        subprocess.run(saved, shell=True, check=True, stdout=subprocess.DEVNULL)
        build = ["docker", "--host", engine.url, "build", "--quiet", "--tag", "spark-bert/train:latest", "-"]
        subprocess.run(build, input=STAGE, text=True, check=True, stdout=subprocess.DEVNULL)
        return engine

    yield make
    for engine in engines:
        for container in engine.client.containers(all=True):
            engine.client.remove_container(container, force=True)
        engine.stop()
    subprocess.run(["umount", "--quiet", str(tmp_path / "data")], check=False)  # with live-restore it stays mounted


def interrupted(engine: Engine) -> list[Exception]:
    """A try under which the engine is restarted: what it raised."""
    raised: list[Exception] = []

    def attempt() -> None:
        try:
            Worker("train")(docker_url=engine.url)
        except AirflowException as error:
            raised.append(error)

    worker = threading.Thread(target=attempt)
    worker.start()
    wait_for(lambda: engine.client.containers(), seconds=60)
    engine.stop()
    worker.join(timeout=60)
    engine.start()
    return raised


@pytest.mark.parametrize("survives", [True, False])
def test_the_next_try_goes_on(survives: bool, engine_with: Callable[..., Engine], tmp_path: Path) -> None:
    """With live-restore the container outlives the engine and is attached to; else a fresh one starts."""
    engine = engine_with(*(["--live-restore"] if survives else []))
    (error,) = interrupted(engine)
    assert not isinstance(error, AirflowFailException)
    (container,) = engine.client.containers(all=True)
    assert (container["State"] == "running") is survives
    before = int(time.time())
    (tmp_path / "home/artifacts/go").touch()
    assert Worker("train")(docker_url=engine.url) == {}
    assert len(starts(engine, before)) == (0 if survives else 1)


def starts(engine: Engine, since: int) -> list[Any]:
    """The containers that were started meanwhile."""
    filters = {"event": "start", "type": "container"}
    return list(engine.client.events(since=since, until=int(time.time()) + 1, filters=filters, decode=True))
