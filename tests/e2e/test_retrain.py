"""The Dag retrain: a real scheduler, triggerer, trainings, registry and service, on a slice of the bundled corpus.

One story in order: files are dropped; the first model becomes the champion; a worse one is refused; a person rejects
another, does not answer, and approves it; the champion is rolled back; a challenger is tried out; the service goes, and
a promotion is undone.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.server import Call, airflow_ui, own_checkout, to_end, trigger, wait_for
from tests.ports import free_port

pytestmark = pytest.mark.long

#: What the Dag trains here: a twentieth of the corpus, which takes seconds. The gate lets a model pass that has learnt
#: nothing, so that challenge is what refuses it.
EXPERIMENT = """
dataset: {drop: data/drop}
preprocessing: {sample: 0.05, max_length: 32}
training: {epochs: 1, evaluations: 1, ranks: 1}
gate: {accuracy: 0.4, beat_baseline: false}
"""
#: Another model, about which a person is asked, however it compares.
ASKED = {
    "retraining.approval": True, "retraining.margin": 0.5, "retraining.slice_margin": 0.9, "training.seed": 2,
}  # fmt: skip
ROWS = [("a film of rare and quiet grace", 1), ("two hours that nobody will give back to me", 0)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = own_checkout(tmp_path_factory.mktemp("checkout"))
    (checkout / "include/experiments/retrain.yaml").write_text(EXPERIMENT)
    (checkout / "data/drop").mkdir(parents=True)
    return checkout


@dataclass(frozen=True)
class Service:
    """The service in a process, and its address."""

    process: subprocess.Popen[bytes]
    address: str


@pytest.fixture(scope="module")
def service(home: Path, checkout: Path) -> Iterator[Service]:
    port = free_port()
    command = [str(checkout / ".venv/tasks/bin/python"), "-m", "tasks.serving", "--home", str(home)]
    with (home / "service.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--set", f"serving.port={port}", "--set", "serving.shadow=1"], cwd=checkout, stderr=log
        )
    yield Service(process, f"http://127.0.0.1:{port}")
    process.terminate()
    process.wait(30)


@pytest.fixture(scope="module")
def call(home: Path, checkout: Path, service: Service) -> Iterator[Call]:
    with airflow_ui(home, checkout, SPARK_BERT_SERVICE=service.address) as call:
        wait_for(lambda: {"retrain", "rollback"} <= {dag["dag_id"] for dag in call("GET", "/api/v2/dags")["dags"]})
        call("PATCH", "/api/v2/dags/retrain", {"is_paused": False})
        yield call


def runs(call: Call) -> list[str]:
    """The paths of the Dag's runs, the newest last."""
    found = call("GET", "/api/v2/dags/retrain/dagRuns?order_by=id")["dag_runs"]
    return [f"/api/v2/dags/retrain/dagRuns/{quote(run['dag_run_id'])}" for run in found]


def retrain(call: Call, **conf: Any) -> str:
    return trigger(call, conf, "retrain")


def xcom(call: Call, tasks: dict[str, Any], name: str) -> Any:
    """What a task has returned."""
    value = call("GET", f"{tasks[name]['path']}/xcomEntries/return_value")["value"]
    return json.loads(value) if isinstance(value, str) else value


def states(tasks: dict[str, Any], *names: str) -> list[str]:
    return [tasks[name]["state"] for name in names]


def answer(call: Call, run: str, option: str) -> None:
    """Wait until the run asks about the second version, and answer."""
    path = f"{run}/taskInstances/approve/-1/hitlDetails"
    wait_for(lambda: call("GET", f"{run}/taskInstances/approve")["state"] == "awaiting_input")
    asked = call("GET", path)
    assert asked["subject"] == "Make version 2 the champion?"
    assert all(text in asked["body"] for text in ("| accuracy |", "Only the champion is right", "report.html"))
    time.sleep(10)  # an answer before the scheduler has seen the task pause is lost with its try; no person is so fast
    call("PATCH", path, {"chosen_options": [option]})


def test_a_dropped_file_starts_a_retraining_whose_model_becomes_the_champion(
    call: Call, checkout: Path, service: Service
) -> None:
    part = checkout / "data/drop/monday.tsv.part"
    part.write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    part.rename(part.with_suffix(""))
    (run,) = wait_for(lambda: runs(call))
    state, tasks = to_end(call, run)
    assert state == "success" and states(tasks, "approve", "promote", "track") == ["skipped", "success", "success"]
    assert xcom(call, tasks, "ingest")["counts"]["added"] == len(ROWS)
    assert xcom(call, tasks, "challenge")["outcome"] == "first"
    promoted = xcom(call, tasks, "promote")
    assert (promoted["promoted"], promoted["champion"], promoted["replaces"]) == (True, "1", "")
    assert states(tasks, "rollout", "rollback") == ["success", "skipped"]
    assert xcom(call, tasks, "rollout") == {
        "service": service.address, "model": "spark-bert-movie-reviews", "version": "1", "taken_up": True
    }  # fmt: skip


def test_nothing_new_is_skipped(call: Call) -> None:
    state, tasks = to_end(call, retrain(call))
    assert state == "success"
    assert set(states(tasks, "news", "train", "promote", "rollout", "rollback")) == {"skipped"}
    log = json.dumps(call("GET", f"{tasks['news']['path']}/logs/1?full_content=true"))
    assert "nothing new: the run retrain-" in log


@pytest.mark.long
def test_a_worse_model_is_refused(call: Call) -> None:
    state, tasks = to_end(call, retrain(call, **{"training.learning_rate": 1e-9}))
    assert state == "failed" and states(tasks, "gate", "challenge") == ["success", "failed"]
    assert set(states(tasks, "register", "promote", "rollout")) == {"upstream_failed"}
    assert states(tasks, "rollback", "track") == ["skipped", "success"]
    refused = xcom(call, tasks, "challenge")
    assert (refused["passed"], refused["outcome"], refused["champion"]) == (False, "worse", "1")
    assert tasks["challenge"]["try_number"] == 1


@pytest.mark.long
def test_a_person_rejects(call: Call) -> None:
    run = retrain(call, **ASKED)
    answer(call, run, "Reject")
    state, tasks = to_end(call, run)
    kept = xcom(call, tasks, "promote")
    assert state == "success" and (kept["promoted"], kept["champion"], kept["decision"]) == (False, "1", "rejected")


@pytest.mark.long
def test_no_answer_in_time_is_a_rejection(call: Call) -> None:
    state, tasks = to_end(call, retrain(call, **ASKED, **{"retraining.timeout_hours": 0.001}))
    assert state == "success"
    assert xcom(call, tasks, "approve") | {"at": ""} == {
        "decision": "rejected", "by": "nobody, in time", "at": "", "timed_out": True,
        "model": "spark-bert-movie-reviews", "version": "2",
    }  # fmt: skip
    assert xcom(call, tasks, "promote")["champion"] == "1"


def test_a_person_approves(call: Call) -> None:
    run = retrain(call, **ASKED, **{"retraining.timeout_hours": 1})
    answer(call, run, "Approve")
    state, tasks = to_end(call, run)
    promoted = xcom(call, tasks, "promote")
    assert state == "success" and (promoted["champion"], promoted["replaces"], promoted["by"]) == ("2", "1", "admin")
    assert xcom(call, tasks, "rollout")["version"] == "2"


def test_the_champion_is_rolled_back(call: Call) -> None:
    state, tasks = to_end(call, trigger(call, {}, "rollback"))
    assert state == "success" and xcom(call, tasks, "rollback")["version"] == "1"


def test_a_challenger_is_tried_out_on_what_users_send(call: Call, home: Path, service: Service) -> None:
    changes = {"retraining.approval": False, "training.seed": 4, "retraining.trial_texts": 20}
    run = retrain(call, **ASKED | changes)
    trial, users = f"{run}/taskInstances/trial", Call(service.address)
    wait_for(lambda: call("GET", trial)["state"] == "deferred")
    while call("GET", trial)["state"] == "deferred":
        assert users("POST", "/query", {"sentences": [text for text, _ in ROWS]})["model"]["version"] == "1"
        time.sleep(0.5)
    state, tasks = to_end(call, run)
    assert state == "success" and xcom(call, tasks, "promote")["promoted"]
    found = xcom(call, tasks, "trial")
    assert found["texts"] >= 20 and 0 <= found["same"] <= found["texts"] and min(found["milliseconds"].values()) > 0
    assert (found["champion"], found["version"]) == ("1", xcom(call, tasks, "promote")["version"])
    (file,) = home.glob("runs/*/trial.json")
    assert json.loads(file.read_text()) == found


def test_a_promotion_that_the_service_does_not_take_up_is_undone(call: Call, service: Service) -> None:
    service.process.terminate()
    service.process.wait(30)
    changes = {"retraining.approval": False, "training.seed": 3, "retraining.rollout_minutes": 0.05}
    state, tasks = to_end(call, retrain(call, **ASKED | changes))
    assert state == "failed" and states(tasks, "promote", "rollout") == ["success", "failed"]
    assert states(tasks, "rollback", "track") == ["success", "success"] and tasks["rollout"]["try_number"] == 1
    promoted, back = xcom(call, tasks, "promote"), xcom(call, tasks, "rollback")
    assert (back["left"], back["version"]) == (promoted["version"], promoted["replaces"])
    log = json.dumps(call("GET", f"{tasks['rollout']['path']}/logs/1?full_content=true"))
    assert (
        f"{service.address} has not answered with version {promoted['version']}" in log
        and "says: nothing (ConnectError" in log
    )
