"""The servers that are compared, each in processes of its own whose processor time and memory are measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.serving.http_load import Target
from tasks.launching.launch import ROOT
from tests.ports import free_port

START = 300  # seconds: a busy machine takes long to import PyTorch


@dataclass(frozen=True)
class Kind:
    """A server that answers with a package.

    Attributes:
        name: what the tables call it.
        path: where it takes requests.
        body: takes a text, and returns the request as JSON has it.
        label: takes the answer, and returns the label.
        command: takes the folder of the package, the form to compute in, and the port; returns the command.
        form_in: the environment variable with the form, as MLflow wants it; "" for none.
    """

    name: str
    path: str
    body: Callable[[str], Any]
    label: Callable[[Any], str]
    command: Callable[[Path, str, int], Sequence[str]]
    form_in: str = ""

    def variables(self, form: str) -> dict[str, str]:
        """The environment variables that choose a form."""
        return {self.form_in: json.dumps({"form": form})} if self.form_in else {}

    def target(self, port: int, texts: Sequence[str]) -> Target:
        """Requests of one text each."""
        return Target.of(port, self.path, [json.dumps(self.body(text)).encode() for text in texts])


def service(port: int, overrides: Sequence[str], home: Path = Path("work")) -> Sequence[str]:
    """The command of our service, with overrides of the experiment."""
    values = [part for pair in (f"serving.port={port}", *overrides) for part in ("--set", pair)]
    return ["-m", "tasks.serving", "--experiment", "retrain", "--home", str(home), *values]


def _ours(name: str, *more: str) -> Kind:
    """Return our service, with more overrides of the experiment."""
    return Kind(
        name,
        "/query",
        lambda text: {"sentences": text},
        lambda answer: str(answer["results"][0]["label"]),
        lambda package, form, port: service(port, [f"serving.model={package}", *more]),
    )


def _rival(name: str, path: str, command: Callable[[Path, str, int], Sequence[str]]) -> Kind:
    """Return a server of this folder, which takes a sentence and answers with its label."""
    return Kind(name, path, lambda text: {"sentence": text}, lambda answer: str(answer["label"]), command)


OURS, *_ = KINDS = (
    _ours("ours"),
    _ours("ours, in fp32", "serving.form=openvino-fp32"),
    _rival(
        "FastAPI with a pipeline",
        "/",
        lambda package, form, port: ["-m", "benchmarks.serving.pipeline_server", str(package), str(port)],
    ),
    _rival(
        "the lab's way",
        "/",
        lambda package, form, port: ["-m", "benchmarks.serving.lab_server", str(package), str(port)],
    ),
    Kind(
        "mlflow models serve",
        "/invocations",
        lambda text: {"dataframe_split": {"columns": ["sentence"], "data": [[text]]}},
        lambda answer: str(answer["predictions"][0]["label"]),
        lambda package, form, port: [
            *("-m", "mlflow", "models", "serve", "--env-manager", "local", "--model-uri", str(package)),
            *("--host", "127.0.0.1", "--port", str(port)),
        ],
        form_in="SERVING_MODEL_CONFIG",
    ),
    _rival(
        "LitServe",
        "/predict",
        lambda package, form, port: ["-m", "benchmarks.serving.litserve_server", str(package), form, str(port)],
    ),
)


class Server:
    """A server in a process that may have others; a context manager, which ends them.

    Args:
        command: takes the port, and returns what Python runs.
        log: the file for what it writes.
        variables: more environment variables.

    Attributes:
        port: its port on the loopback.
    """

    def __init__(self, command: Callable[[int], Sequence[str]], log: Path, **variables: str) -> None:
        self.port, self._log = free_port(), log
        # MLflow calls uvicorn by its name.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        with log.open("wb") as file:
            self._process = psutil.Popen(
                [sys.executable, *command(self.port)],
                cwd=ROOT,
                env={**os.environ, "PATH": path, **variables},
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Server:
        """Leave it running."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it, and what it has started."""
        started = self._processes()
        for process in started:
            process.terminate()
        for process in psutil.wait_procs(started, timeout=30)[1]:
            process.kill()
        self._process.wait()

    def ask(self, path: str, value: Any = None) -> tuple[int, bytes]:
        """Send a request, a POST if it has a value. Return status and body; the status is 0 if nobody listens."""
        body = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=START) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError as error:
            return 0, repr(error).encode()

    def wait_for(self, path: str, value: Any = None) -> None:
        """Wait until it answers a request with 200.

        Raises:
            RuntimeError: if it ends or takes too long.
        """
        answer = b""
        for _ in range(START * 10):
            status, answer = self.ask(path, value)
            if status == 200:
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"the server does not answer: {answer!r}\n{self._log.read_text(encoding='utf-8')}")

    def metric(self, name: str) -> float:
        """The value of a metric of our service that has no labels."""
        lines = self.ask("/metrics")[1].decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def cpu_seconds(self) -> float:
        """Processor time of all its processes, those that have ended included."""
        # Whoever waits for a process that ends inherits its times.
        return float(sum(sum(process.cpu_times()[:4]) for process in self._processes()))

    def megabytes(self) -> float:
        """Resident memory of all its processes. What they share counts for each."""
        return float(sum(process.memory_info().rss for process in self._processes())) / 1e6

    def _processes(self) -> list[Any]:
        return [self._process, *self._process.children(recursive=True)]
