"""A service in a process of its own, which answers with a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from include.artifacts import write_json
from tests.tasks.stages.pipeline.package.packages import SCORES, packaged


@dataclass(frozen=True)
class Reply:
    """An HTTP response: its status, its headers, and its body as JSON."""

    status: int
    headers: dict[str, str]
    value: Any


@dataclass(frozen=True)
class Client:
    """A client of a service at an address."""

    address: str

    def send(self, path: str, body: bytes | None = None, **headers: str) -> Reply:
        """Send a request: a POST if it has a body."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.address + path, body, named)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return Reply(response.status, dict(response.headers), _parsed(response.read()))
        except urllib.error.HTTPError as error:
            return Reply(error.code, dict(error.headers), _parsed(error.read()))

    def post(self, path: str, value: Any, **headers: str) -> Reply:
        """Send a value as JSON."""
        return self.send(path, json.dumps(value).encode(), **headers)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


class Process:
    """A service in a process.

    Attributes:
        client: its client.
        log: the file with its log.
        process: the process.
    """

    def __init__(self, folder: Path, *overrides: str, **variables: str) -> None:
        self.log = folder / "service.log"
        command = [sys.executable, "-m", "tasks.serving", "--experiment", "retrain", "--home", str(folder)]
        command += [part for pair in ("serving.port=0", *overrides) for part in ("--set", pair)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env={**os.environ, **variables})
        self.client = Client(self._address())

    def _address(self) -> str:
        return self.said("Uvicorn running on ", "http://").split("Uvicorn running on ")[1].split()[0]

    def said(self, *parts: str, seconds: float = 60) -> str:
        """Wait for a line of the log with these parts, and return it."""
        for _ in range(int(seconds * 20)):
            lines = self.log.read_text(encoding="utf-8").splitlines()
            if found := [line for line in lines if all(part in line for part in parts)]:
                return found[-1]
            assert self.process.poll() is None, "\n".join(lines)
            time.sleep(0.05)
        raise AssertionError(f"no line of the log has {parts}: {lines}")

    def stop(self) -> int:
        """End it with SIGTERM, and return its exit code."""
        self.process.terminate()
        return self.process.wait(30)


def exact(package: Path) -> Path:
    """Let a package offer only forms in fp32: in others, answers differ a little, or with the other rows of a batch."""
    said = json.loads((package / "package.json").read_text(encoding="utf-8"))
    for form in said["forms"]:
        form["offered"] = form["offered"] and form["precision"] == "fp32"
    write_json(package / "package.json", {**said, "served": "onnxruntime-fp32"})
    return package


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts services in the test's folder. None of them is left after the test."""
    started = []

    def start(*overrides: str, **variables: str) -> Process:
        started.append(Process(tmp_path, *overrides, **variables))
        return started[-1]

    yield start
    for process in started:
        process.process.kill()


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a package of a classifier."""
    return exact(packaged(tmp_path_factory.mktemp("packaged")).path)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a package of a regression on pairs."""
    return exact(packaged(tmp_path_factory.mktemp("pairs"), spec=SCORES).path)


@pytest.fixture(scope="session")
def service(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A service that answers with the classifier."""
    limits = ("serving.max_rows=40", "serving.max_bytes=20000", "serving.threads=1")
    process = Process(tmp_path_factory.mktemp("service"), f"serving.model={package}", *limits)
    process.said("answers from now on")
    yield process
    process.process.kill()


@pytest.fixture
def client(service: Process) -> Client:
    """A client of the service that answers with the classifier."""
    return service.client
