"""`make ui`: a real scheduler and web server, a run triggered through the REST API, its links in the browser."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.make_run import ROOT

CONF = {"preprocessing.sample": 0.1, "training.epochs": 1}
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def call(home: Path) -> Iterator[Call]:
    """Airflow's web server on a free port, as a function: method, path and JSON body to JSON answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"SPARK_BERT_HOME": str(home), "AIRFLOW__API__PORT": str(port)}
    with (home / "ui.log").open("w") as log:
        command = [str(ROOT / "scripts/airflow.sh"), "ui"]
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield _log_in(f"http://127.0.0.1:{port}", home)
    finally:
        _stop(server)


def _log_in(url: str, home: Path) -> Call:
    def call(method: str, path: str, body: dict[str, Any] | None = None, token: str = "") -> Any:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if "json" in answer.headers["Content-Type"] else text

    passwords = home / "airflow/simple_auth_manager_passwords.json.generated"
    for _ in range(120):
        try:
            login = {"username": "admin", "password": json.loads(passwords.read_text())["admin"]}
            token = call("POST", "/auth/token", login)["access_token"]
            call("GET", "/api/v2/dags/finetune", token=token)
            return lambda method, path, body=None: call(method, path, body, token)
        except (OSError, ValueError):
            time.sleep(1)
    raise AssertionError(f"Airflow did not start: {(home / 'ui.log').read_text()[-2000:]}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    os.killpg(server.pid, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=15)
    for process in alive:
        process.kill()


def _run_to_end(call: Call, conf: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Trigger the Dag and wait: the run's state, and its tasks by name."""
    run = call("POST", "/api/v2/dags/finetune/dagRuns", {"logical_date": None, "conf": conf})
    path = f"/api/v2/dags/finetune/dagRuns/{run['dag_run_id']}"
    for _ in range(240):
        state = call("GET", path)["state"]
        if state in ("success", "failed"):
            tasks = call("GET", f"{path}/taskInstances")["task_instances"]
            return state, {
                task["task_id"]: task | {"path": f"{path}/taskInstances/{task['task_id']}"} for task in tasks
            }
        time.sleep(1)
    raise AssertionError(f"the run did not end: {call('GET', path)}")


def test_a_triggered_run_with_an_override_succeeds_and_its_report_opens(call: Call) -> None:
    state, tasks = _run_to_end(call, {**CONF, "gate.accuracy": 0.55})
    assert state == "success", tasks
    result = call("GET", f"{tasks['gate']['path']}/xcomEntries/return_value?deserialize=true")["value"]
    assert result["passed"] is True
    links = call("GET", f"{tasks['evaluate']['path']}/links")["extra_links"]
    assert "<html" in call("GET", links["Report"])


def test_a_gate_too_high_ends_red_at_the_gate_without_a_retry(call: Call) -> None:
    state, tasks = _run_to_end(call, {**CONF, "gate.accuracy": 0.999})
    assert state == "failed"
    assert tasks["gate"]["state"] == "failed" and tasks["gate"]["try_number"] == 1
    assert tasks["predict"]["state"] == "upstream_failed"


def test_a_wrong_value_is_refused_by_the_form(call: Call) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        call("POST", "/api/v2/dags/finetune/dagRuns", {"logical_date": None, "conf": {"training.epochs": -1}})
    assert refusal.value.code == 400
    assert "training.epochs" in refusal.value.read().decode()
