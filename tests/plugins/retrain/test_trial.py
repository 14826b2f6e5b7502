"""The trial of a registered version: what the triggerer reads from the service, and when there is none."""

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
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from include.runs import TRIAL
from spark_bert.dag.params import form
from spark_bert.deployment.places import run_folder
from spark_bert.retrain.retraining import EXPERIMENT
from spark_bert.retrain.service import Trial, TrialTrigger
from tests.plugins.receivers import serving


class Service(http.server.ThreadingHTTPServer):
    """Has the metrics of a service that compares ten more texts before each look, of which nine get the same answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self._registry = CollectorRegistry()
        self._shadows = Counter("spark_bert_shadow_answers", "", ["version", "outcome"], registry=self._registry)
        self.model = Gauge("spark_bert_model", "", ["name"], registry=self._registry)
        self.model.labels("reviews").set(1)
        self._seconds = Histogram("spark_bert_model_seconds", "", ["version"], registry=self._registry)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def look(self) -> bytes:
        """Compare and return the metrics."""
        for outcome, count in {"same": 9, "other": 1, "skipped": 2}.items():
            self._shadows.labels("4", outcome).inc(count)
        self._shadows.labels("3", "other").inc(100)  # an earlier challenger's
        for version, seconds in {"2": 0.010, "4": 0.012}.items():
            self._seconds.labels(version).observe(seconds)
        return generate_latest(self._registry)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.send_response(self.server.status if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(self.server.look())

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it found."""


@pytest.fixture
def server() -> Iterator[Service]:
    with serving(Service()) as server:
        yield server


def wait(address: str, texts: int, seconds: float = 30) -> dict[str, Any]:
    """Let a trigger that came back from the triggerer's database wait, and return its event."""
    kind, arguments = TrialTrigger(address, "reviews", "2", "4", texts, seconds / 60, interval=0.02).serialize()
    assert kind == "spark_bert.retrain.service.TrialTrigger"
    trigger = TrialTrigger(**json.loads(json.dumps(arguments)))

    async def events() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(events())
    assert isinstance(event, dict)
    return event


def test_it_waits_for_enough_texts(server: Service) -> None:
    assert wait(server.address, 25) == {
        "service": server.address,
        "champion": "2",
        "version": "4",
        "texts": 30,
        "same": 27,
        "skipped": 6,
        "milliseconds": {"champion": 10.0, "challenger": 12.0},
    }


def test_with_too_few_texts_it_ends_in_time(server: Service) -> None:
    assert wait(server.address, 10**6, 0)["texts"] == 10
    server.status = 503
    event = wait(server.address, 1, 0.2)
    assert event["texts"] == 0 and event["milliseconds"] == {"champion": None, "challenger": None}


def test_a_replica_that_has_just_started_does_not_take_the_place_of_another(
    server: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([server.look()])
    monkeypatch.setattr(server, "look", lambda: next(looks, b""))
    assert wait(server.address, 11, 0.2)["texts"] == 10


def test_the_versions_of_another_model_do_not_count(server: Service, capsys: pytest.CaptureFixture[str]) -> None:
    server.model.clear()
    assert wait(server.address, 1, 0.1)["texts"] == 0
    server.model.labels("others").set(1)
    assert wait(server.address, 1, 0.1)["texts"] == 0
    log = capsys.readouterr().out
    assert "it answers with no model, not with reviews" in log and "it answers with others, not with reviews" in log


def test_a_service_that_is_away_has_compared_nothing() -> None:
    with serving(Service()) as server:
        address = server.address
    assert wait(address, 1, 0.2)["texts"] == 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_BERT_SERVICE", "http://serve:8000")
    return tmp_path


def context(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any], champion: str = "2", outcome: str = "not worse"
) -> Any:
    """The context of a run whose version 4 was compared with this champion."""
    compared = {"champion": champion, "outcome": outcome}
    results = {"challenge": compared, "register": {"model": "reviews", "version": "4"}}
    made = lambda _, stage: SimpleNamespace(manifest=SimpleNamespace(result=results[stage]))  # noqa: E731
    monkeypatch.setattr("include.runs.Run.artifact", made)
    params = ParamsDict(form(EXPERIMENT, more=("dataset", "retraining")))
    params.update({"retraining.trial_texts": 50} | conf)
    run_folder("retrain", "one").mkdir(parents=True, exist_ok=True)
    return {"dag_run": SimpleNamespace(dag_id="retrain", run_id="one"), "params": params.validate()}


def test_the_triggerer_waits_as_the_experiment_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, stale = context(monkeypatch, {"retraining.trial_minutes": 3}), run_folder("retrain", "one") / TRIAL
    stale.write_text("{}")
    with pytest.raises(TaskDeferred) as deferred:
        Trial(task_id="trial").execute(given)
    trigger = deferred.value.trigger
    assert isinstance(trigger, TrialTrigger) and not stale.exists()
    asked = {"service": "http://serve:8000", "model": "reviews", "champion": "2", "version": "4"}
    assert trigger.serialize()[1] == {**asked, "texts": 50, "minutes": 3, "interval": 10}
    event = {"version": "4", "texts": 50, "same": 49}
    assert Trial(task_id="trial").execute_complete(given, event) == event == json.loads(stale.read_text())


@pytest.mark.parametrize(
    ("champion", "texts", "reason"), [("2", 0, "retraining.trial_texts is 0"), ("", 50, "there is no champion")]
)
def test_there_is_nothing_to_try_out(
    champion: str, texts: int, reason: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AirflowSkipException, match=reason):
        Trial(task_id="trial").execute(context(monkeypatch, {"retraining.trial_texts": texts}, champion))


def test_there_is_no_trial_whose_figures_nobody_would_see(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowSkipException, match=r"undecided and retraining\.approval is off: the champion stays"):
        Trial(task_id="trial").execute(context(monkeypatch, {}, outcome="undecided"))
    monkeypatch.setenv("SPARK_BERT_APPROVERS", "ann")
    with pytest.raises(TaskDeferred):
        Trial(task_id="trial").execute(context(monkeypatch, {}, outcome="undecided"))


def test_a_trial_needs_a_service(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_BERT_SERVICE")
    with pytest.raises(
        AirflowFailException, match=r"names no service: set SPARK_BERT_SERVICE .* retraining.trial_texts: 0"
    ):
        Trial(task_id="trial").execute(context(monkeypatch, {}))
