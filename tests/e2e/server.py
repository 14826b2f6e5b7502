"""Airflow with its scheduler and web page as `make ui` starts it, driven through its REST API, and the service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import psutil

from tests.ports import free_port

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Call:
    """Calls the REST API of an Airflow. The url has no slash at its end, and the token is empty before the login."""

    url: str
    token: str = ""

    def __call__(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the JSON, or else the text, of the answer to a method, a path and a JSON body."""
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            answer, text = _answer(request)
        except HTTPError as error:
            if error.code != HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            # Airflow's API server logs an action before it acts, in its event loop. If another request holds SQLite's
            # lock and needs that loop to commit, both wait until SQLite gives up, and nothing has been done.
            answer, text = _answer(request)
        return json.loads(text) if "json" in answer.headers["Content-Type"] else text


def _answer(request: urllib.request.Request) -> tuple[HTTPResponse, str]:
    answer: HTTPResponse
    with urllib.request.urlopen(request, timeout=300) as answer:  # a busy machine may need minutes
        return answer, answer.read().decode()


@contextmanager
def airflow_ui(home: Path, checkout: Path = ROOT, **environment: str) -> Iterator[Call]:
    """Start the checkout's Airflow on a free port with more variables, log in, and stop it. Its log is home/ui.log."""
    port = free_port()
    settings = os.environ | {"SPARK_BERT_HOME": str(home), "AIRFLOW__API__PORT": str(port)} | environment
    with (home / "ui.log").open("w") as log:
        command = [str(checkout / "scripts/airflow.sh"), "ui"]
        server = subprocess.Popen(command, env=settings, stdout=log, stderr=log, start_new_session=True)
    try:
        passwords = home / "airflow/simple_auth_manager_passwords.json.generated"
        yield log_in(f"http://127.0.0.1:{port}", passwords, home / "ui.log")
    finally:
        _stop(server)


@contextmanager
def service(home: Path, checkout: Path = ROOT) -> Iterator[str]:
    """Start the checkout's service of the experiment retrain, which has a champion, and yield its address."""
    port = free_port()
    command = [str(checkout / ".venv/tasks/bin/python"), "-m", "tasks.serving", "--experiment", "retrain"]
    command += ["--home", str(home), "--set", f"serving.port={port}"]
    with (home / "service.log").open("w") as log, subprocess.Popen(command, cwd=checkout, stderr=log) as server:
        try:
            wait_for(lambda: _is_ready(f"http://127.0.0.1:{port}"), seconds=120)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def own_checkout(folder: Path) -> Path:
    """Copy the part of this checkout that runs into the folder, so that data/ may be filled. It shares .venv."""
    for name in ("dags", "include", "plugins", "tasks", "scripts", "requirements"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def trigger(call: Call, conf: dict[str, Any], dag: str = "finetune") -> str:
    """Start a run of the Dag and return its path in the API."""
    run = call("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None, "conf": conf})
    return f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}"


def wait_for(condition: Callable[[], Any], seconds: float = 480) -> Any:
    """Return what the condition returns as soon as it is true. Raise TimeoutError if this takes longer."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {seconds:g} seconds")
        time.sleep(0.5)
    return found


def to_end(call: Call, run: str) -> tuple[str, dict[str, Any]]:
    """Wait for the run's end and return its state, and its Airflow tasks by name."""
    ended = {"success": "success", "failed": "failed"}
    state = wait_for(lambda: ended.get(call("GET", run)["state"]), seconds=1800)  # a busy machine takes its time
    tasks = call("GET", f"{run}/taskInstances")["task_instances"]
    return state, {task["task_id"]: task | {"path": f"{run}/taskInstances/{task['task_id']}"} for task in tasks}


def log_in(url: str, passwords: Path, log: Path) -> Call:
    """Wait until an Airflow answers, and log in as its administrator.

    Args:
        url: its address.
        passwords: the file of passwords by user.
        log: the file whose end says why it did not start.

    Raises:
        TimeoutError: if it does not answer.
    """
    for _ in range(300):
        try:
            login = {"username": "admin", "password": json.loads(passwords.read_text())["admin"]}
            call = Call(url, Call(url)("POST", "/auth/token", login)["access_token"])
            call("GET", "/api/v2/dags/finetune")
            return call
        except (OSError, ValueError):
            time.sleep(1)
    raise TimeoutError(f"Airflow did not start: {log.read_text()[-2000:]}")


def _is_ready(url: str) -> bool:
    try:
        Call(url)("GET", "/v2/health/ready")
    except OSError:  # it does not listen yet, or has no model yet
        return False
    return True


def _stop(server: subprocess.Popen[bytes]) -> None:
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    server.terminate()  # it ends the others
    _, alive = psutil.wait_procs(family, timeout=60)
    for process in alive:
        process.kill()
    if alive:
        raise TimeoutError(f"Airflow did not stop: {[process.name() for process in alive]} had to be killed")
