"""A SIGTERM to a worker: the deployment says whether containers go on, Airflow whether a person wants them ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from include.stages import BadInput
from spark_bert.operators.failures import Interrupted
from tests.plugins.operators.daemon import RUN, Daemon, context, operator

pytestmark = pytest.mark.usefixtures("home")


def states(**found: str) -> Any:
    """Airflow's answer about the tasks of the run."""
    return lambda dag_id, map_index, task_ids, run_ids: {RUN: found} if found else {}


def silence(*_: Any, **__: Any) -> None:
    raise ConnectionError("the API server is away")


def killed(ask: Any, daemon: Daemon) -> list[str]:
    """A try gets a SIGTERM: the containers that run after it."""
    daemon.start_of(context(get_task_states=ask)).on_kill()
    return list(daemon.containers_)


def test_a_shutdown_stops_the_container_unless_the_deployment_keeps_it() -> None:
    assert killed(states(train="running"), Daemon()) == []


@pytest.mark.parametrize("ask", [states(train="running"), silence])
def test_a_kept_container_waits_for_the_next_try(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's own API server may be away, too: then the supervisor ends the task."""
    monkeypatch.setenv("SPARK_BERT_ON_SHUTDOWN", "keep")
    daemon = Daemon()
    with pytest.raises(Interrupted, match=r"the worker is shut down; .* keeps running, and the next try attaches"):
        killed(ask, daemon)
    assert daemon.asked == ["create try-1", "start try-1"]
    daemon.start_of(context("try-2"))
    assert daemon.asked[2:] == ["rename try-1"]


@pytest.mark.parametrize("state", ["restarting", "failed", "success", "deleted"])
def test_a_person_ends_a_task_whatever_the_deployment_keeps(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_ON_SHUTDOWN", "keep")
    assert killed(states() if state == "deleted" else states(train=state), Daemon()) == []


@pytest.fixture
def never() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_an_answer_that_does_not_come_is_not_waited_for(
    never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal may have come in the middle of another question to Airflow, which is answered first."""
    monkeypatch.setenv("SPARK_BERT_ON_SHUTDOWN", "keep")
    monkeypatch.setattr("spark_bert.operators.stopping._STATE_TIMEOUT", 0.01)
    with pytest.raises(Interrupted):
        killed(lambda *_, **__: never.wait(60), Daemon())


def test_another_choice_is_refused_when_the_dag_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_ON_SHUTDOWN", "leave")
    with pytest.raises(BadInput, match="SPARK_BERT_ON_SHUTDOWN='leave' is not valid: write stop or keep"):
        operator()
