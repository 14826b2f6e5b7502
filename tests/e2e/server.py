"""Airflow with its scheduler and web page as `make ui` starts it, driven through its REST API."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.make_run import ROOT

Call = Callable[..., Any]


@contextmanager
def airflow_ui(home: Path, checkout: Path = ROOT, **environment: str) -> Iterator[Call]:
    """The checkout's Airflow on a free port, as a function: method, path and JSON body to JSON answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = os.environ | {"SPARK_BERT_HOME": str(home), "AIRFLOW__API__PORT": str(port)} | environment
    with (home / "ui.log").open("w") as log:
        command = [str(checkout / "scripts/airflow.sh"), "ui"]
        server = subprocess.Popen(command, env=settings, stdout=log, stderr=log, start_new_session=True)
    try:
        passwords = home / "airflow/simple_auth_manager_passwords.json.generated"
        yield log_in(f"http://127.0.0.1:{port}", passwords, home / "ui.log")
    finally:
        _stop(server)


def trigger(call: Call, conf: dict[str, Any], dag: str = "finetune") -> str:
    """Start a run of the Dag: its path in the API."""
    run = call("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None, "conf": conf})
    return f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}"


def wait_for(condition: Callable[[], Any], seconds: float = 480) -> Any:
    """What the condition gives as soon as it is something."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.5)
    return found


def to_end(call: Call, run: str) -> tuple[str, dict[str, Any]]:
    """Wait for the run's end: its state, and its tasks by name."""
    state = wait_for(lambda: {"success": "success", "failed": "failed"}.get(call("GET", run)["state"]))
    tasks = call("GET", f"{run}/taskInstances")["task_instances"]
    return state, {task["task_id"]: task | {"path": f"{run}/taskInstances/{task['task_id']}"} for task in tasks}


def log_in(url: str, passwords: Path, log: Path) -> Call:
    """The API of the Airflow at the address, as soon as it answers: method, path and JSON body to JSON answer."""

    def call(method: str, path: str, body: dict[str, Any] | None = None, token: str = "") -> Any:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + path, data, headers, method=method)
        # A busy machine may let the API server wait for the database for more than a minute.
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read().decode()
        return json.loads(text) if "json" in answer.headers["Content-Type"] else text

    for _ in range(300):
        try:
            login = {"username": "admin", "password": json.loads(passwords.read_text())["admin"]}
            token = call("POST", "/auth/token", login)["access_token"]
            call("GET", "/api/v2/dags/finetune", token=token)
            return lambda method, path, body=None: call(method, path, body, token)
        except (OSError, ValueError):
            time.sleep(1)
    raise AssertionError(f"Airflow did not start: {log.read_text()[-2000:]}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    os.killpg(server.pid, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=15)
    for process in alive:
        process.kill()
