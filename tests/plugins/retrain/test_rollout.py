"""The rollout: how long the triggerer waits for which answers of a server, and when a promotion is undone."""

from __future__ import annotations

import asyncio
import http.server
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred

from include.stages import BadInput
from spark_bert.dag.params import form
from spark_bert.operators.base import StageOperator
from spark_bert.retrain.retraining import EXPERIMENT
from spark_bert.retrain.service import Rollout, RolloutTrigger, service, undo
from tests.plugins.receivers import serving

MODEL = "spark-bert-reviews"
PROMOTED = {"promoted": True, "model": MODEL, "version": "3"}


class Service(http.server.ThreadingHTTPServer):
    """Answers as the service does, or in another way.

    Attributes:
        used: the model and the version that answer; None as long as there are none.
        says: a status and a body for every request; None for the service's own answers.
        later: what becomes of `used` after so many requests.
        paths: the paths of the requests.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.used: tuple[str, str] | None = (MODEL, "2")
        self.says: tuple[int, str] | None = None
        self.later: dict[int, tuple[str, str]] = {}
        self.paths: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, path: str) -> tuple[int, str]:
        """Return the status and the body for a path."""
        self.paths.append(path)
        self.used = self.later.get(len(self.paths), self.used)
        if self.says is not None:
            return self.says
        if self.used is None:
            return 503, json.dumps({"error": "no model is loaded yet: try again in a few seconds"})
        model, version = self.used
        if path == f"/v2/models/{model}":
            return 200, json.dumps({"name": model, "versions": [version]})
        return 404, json.dumps({"error": f"there is no such model: {model} has {version}"})


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        status, body = self.server.answer(self.path)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it found."""


@pytest.fixture
def server() -> Iterator[Service]:
    with serving(Service()) as server:
        yield server


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_BERT_SERVICE", raising=False)


def wait(address: str, seconds: float = 0.3) -> dict[str, Any]:
    """Let a trigger that came back from the triggerer's database wait, and return its event."""
    kind, arguments = RolloutTrigger(address, MODEL, "3", seconds / 60, interval=0.02).serialize()
    assert kind == "spark_bert.retrain.service.RolloutTrigger"
    trigger = RolloutTrigger(**json.loads(json.dumps(arguments)))

    async def events() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(events())
    assert isinstance(event, dict) and event | arguments == event
    return event


def test_it_waits_until_the_version_answers(server: Service) -> None:
    server.used, server.later = None, {3: (MODEL, "2"), 7: (MODEL, "3")}
    assert wait(server.address, 30)["outcome"] == "ready"
    assert set(server.paths) == {f"/v2/models/{MODEL}"} and len(server.paths) == 7


def test_a_version_that_does_not_come_is_late(server: Service) -> None:
    event = wait(server.address, 2)
    assert event["outcome"] == "late" and len(server.paths) > 4
    assert event["answer"] == "version 2 answers"


def test_without_time_the_service_is_still_asked(server: Service) -> None:
    assert wait(server.address, 0)["outcome"] == "late"
    server.used = (MODEL, "3")
    assert wait(server.address, 0)["outcome"] == "ready"


@pytest.mark.parametrize("later", [{}, {5: ("spark-bert-other", "3")}])
def test_another_model_is_not_waited_for(server: Service, later: dict[int, tuple[str, str]]) -> None:
    server.used, server.later = None if later else ("spark-bert-other", "3"), later
    event = wait(server.address, 30)
    assert event["outcome"] == "elsewhere" and event["answer"] == "404: there is no such model: spark-bert-other has 3"


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [
        (200, "<html>", "200: <html>"),  # a web page for every path
        (200, "[]", "200: []"),
        (200, '{"versions": "3"}', '200: {"versions": "3"}'),
        (404, "not found", "404: not found"),
        (500, "\xff" * 900, "500: " + "\xff" * 200),
        (503, '{"error": "no model is loaded yet"}', "503: no model is loaded yet"),
    ],
)
def test_what_else_is_said_is_no_answer(server: Service, status: int, body: str, answer: str) -> None:
    server.says = status, body
    event = wait(server.address)
    assert (event["outcome"], event["answer"]) == ("late", answer)


def test_a_service_that_is_away_is_waited_for() -> None:
    with serving(Service()) as server:
        address = server.address
    event = wait(address)
    assert event["outcome"] == "late" and event["answer"].startswith("nothing (ConnectError: ")
    event = wait("http://no-such-host.invalid:8000")
    assert event["outcome"] == "late" and event["answer"].startswith("nothing (ConnectError: ")


def context(promote: Any = None, rollout: Any = None, **conf: Any) -> Any:
    results, pushed = {"promote": promote, "rollout": rollout}, dict[str, Any]()
    params = ParamsDict(form(EXPERIMENT, more=("dataset", "retraining")))
    params.update(conf)
    ti = SimpleNamespace(
        xcom_pull=lambda task_ids: results[task_ids], xcom_push=lambda key, value: pushed.update({key: value})
    )
    return {"ti": ti, "params": params.validate(), "pushed": pushed}


def operator() -> Rollout:
    return Rollout(task_id="rollout")


def test_the_triggerer_waits_as_long_as_the_experiment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_SERVICE", "http://serve:8000/")
    with pytest.raises(TaskDeferred) as deferred:
        operator().execute(context(PROMOTED, **{"retraining.rollout_minutes": 3}))
    trigger = deferred.value.trigger
    assert isinstance(trigger, RolloutTrigger) and deferred.value.method_name == "execute_complete"
    asked = {"service": "http://serve:8000", "model": MODEL, "version": "3", "minutes": 3, "interval": 5}
    assert trigger.serialize()[1] == asked


@pytest.mark.parametrize(
    ("address", "promote", "reason"),
    [
        ("", PROMOTED, "SPARK_BERT_SERVICE names no service"),
        ("http://serve:8000", PROMOTED | {"promoted": False}, "the champion has not changed"),
        ("http://serve:8000", None, "the champion has not changed"),  # a person has marked promote as successful
    ],
)
def test_there_is_nothing_to_wait_for(address: str, promote: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_SERVICE", address)
    with pytest.raises(AirflowSkipException, match=reason):
        operator().execute(context(promote))


@pytest.mark.parametrize("address", ["serve:8000", "ftp://serve", "http://", "http://serve :8000"])
def test_a_wrong_address_stops_the_dag_from_loading(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_SERVICE", address)
    with pytest.raises(BadInput, match=r"SPARK_BERT_SERVICE=.* is not an address: write one such as http://serve:8000"):
        operator()


def test_a_deployment_may_have_no_service() -> None:
    assert service() == "" and operator().task_id == "rollout"


def test_the_result_says_what_was_taken_up(server: Service) -> None:
    server.used = (MODEL, "3")
    result = operator().execute_complete(context(), wait(server.address))
    assert result == {"service": server.address, "model": MODEL, "version": "3", "taken_up": True}
    with pytest.raises(AirflowSkipException, match="nothing to undo"):
        _before_rollback(context(rollout=result))


def test_a_version_that_is_late_fails_the_task_and_is_taken_back(server: Service) -> None:
    now = context()
    with pytest.raises(AirflowFailException) as failed:
        operator().execute_complete(now, wait(server.address, 0))
    assert str(failed.value) == (
        f"{server.address} has not answered with version 3 of {MODEL} within 0 minutes, but says: version 2 answers. "
        "The task rollback undoes the promotion. Look for the reason in the log of the service, remedy it, and clear "
        "the task promote"
    )
    result = now["pushed"]["return_value"]
    assert result == {"service": server.address, "model": MODEL, "version": "3", "taken_up": False}
    _before_rollback(context(rollout=result))


def test_another_model_is_no_reason_to_go_back(server: Service) -> None:
    server.used = ("spark-bert-other", "3")
    now = context()
    with pytest.raises(AirflowSkipException, match=f"does not serve {MODEL}: it says: 404: there is no such model"):
        operator().execute_complete(now, wait(server.address))
    assert not now["pushed"]
    with pytest.raises(AirflowSkipException, match="nothing to undo"):
        _before_rollback(now)


def _before_rollback(where: Any) -> None:
    """Do what Airflow does before it executes the task."""
    task = undo()
    assert isinstance(task, StageOperator) and task.stage == "rollback" and task._pre_execute_hook is not None
    task._pre_execute_hook(where)
