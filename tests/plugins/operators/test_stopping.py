"""What stops containers: housekeeping, if their task is over in Airflow's own record, and a worker's shutdown."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk.types import RuntimeTaskInstanceProtocol
from docker.errors import DockerException

from include.stages import BadInput
from spark_bert.operators import docker_containers as engine
from spark_bert.operators import kubernetes_pods as pods
from spark_bert.operators.failures import Interrupted, Unreachable
from spark_bert.operators.stopping import end_orphans, find_orphans
from tests.airflow_home import ROOT
from tests.plugins.operators.cluster import Cluster, running
from tests.plugins.operators.daemon import RUN, Daemon, context, operator
from tests.plugins.operators.pods import RUN as POD_RUN
from tests.plugins.operators.pods import Store
from tests.plugins.operators.pods import context as pod_context
from tests.plugins.operators.pods import operator as pod_operator

pytestmark = pytest.mark.usefixtures("home")


def airflow(**states: str | None) -> RuntimeTaskInstanceProtocol:
    """Airflow's record of the tasks of the run."""
    answer = {RUN: states, POD_RUN: states} if states else {}
    return cast(RuntimeTaskInstanceProtocol, SimpleNamespace(get_task_states=lambda dag_id, task_ids, run_ids: answer))


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon()
    monkeypatch.setattr(engine, "APIClient", lambda **_: made)
    return made


@pytest.mark.parametrize(("runtime", "schedule"), [("process", None), ("docker", "@hourly"), ("kubernetes", "@hourly")])
def test_it_looks_every_hour_where_there_can_be_any(
    runtime: str, schedule: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_BERT_RUNTIME", runtime)
    dag = runpy.run_path(str(ROOT / "dags/housekeeping.py"))["dag"]
    assert dag.schedule == schedule


@pytest.mark.parametrize("state", ["failed", "success", "skipped", None, "unknown"])
def test_a_container_whose_task_is_over_is_ended(state: str | None, daemon: Daemon) -> None:
    daemon.start_of(context("try-1"))
    record = airflow() if state == "unknown" else airflow(train=state)
    (work,) = find_orphans(engine.list_workloads(), record)
    work.end()
    assert daemon.asked[2:] == ["rename try-1", "stop 60 try-1.ending", "remove try-1.ending"]
    assert daemon.containers_ == {}


@pytest.mark.parametrize("status", ["exited", "created"])
def test_a_container_that_nobody_has_collected_goes(status: str, daemon: Daemon) -> None:
    """Airflow kills a task 5 seconds after its SIGTERM, which may be before the container could be removed."""
    first = daemon.start_of(context("try-1"))
    daemon.rename(first.name, f"{first.name}.ending")
    daemon.set(f"{first.name}.ending", status)
    (work,) = find_orphans(engine.list_workloads(), airflow(train="failed"))
    work.end()
    assert daemon.containers_ == {}


@pytest.mark.parametrize("state", ["scheduled", "queued", "running", "restarting", "up_for_retry"])
def test_a_container_with_a_try_to_come_is_left(state: str, daemon: Daemon) -> None:
    daemon.start_of(context("try-1"))
    assert list(find_orphans(engine.list_workloads(), airflow(train=state))) == []


def test_each_mapped_task_is_looked_up_by_itself(daemon: Daemon) -> None:
    names = [daemon.start_of(context("try-1", map_index=index)).name for index in (0, 1)]
    record = airflow(train_0="running", train_1="failed")
    assert [work.name for work in find_orphans(engine.list_workloads(), record)] == [names[1]]


def test_a_container_that_a_try_has_taken_over_meanwhile_goes_on(daemon: Daemon) -> None:
    daemon.start_of(context("try-1"))
    (work,) = find_orphans(engine.list_workloads(), airflow(train="failed"))
    second = daemon.start_of(context("try-2"))
    work.end()
    assert daemon.inspect_container(second.name)["State"]["Running"]


def test_another_deployment_is_left_alone(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.start_of(context("try-1"))
    monkeypatch.setenv("SPARK_BERT_DEPLOYMENT", "other")
    assert engine.list_workloads() == []


def test_an_engine_that_does_not_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**_: Any) -> None:
        raise DockerException("Connection refused")

    monkeypatch.setattr(engine, "APIClient", away)
    with pytest.raises(Unreachable, match="no Docker daemon answers: Connection refused"):
        engine.list_workloads()


def pod_of(attempt: str, store: Store) -> None:
    """What a try does before it follows the log: attach, or start a pod."""
    where, made = pod_context(store=store, attempt=attempt), pod_operator()
    made._configure_pod(where)
    made.get_or_create_pod(made.build_pod_request_obj(where), where)


def test_pods_are_found_and_ended_likewise(cluster: Cluster, database: None) -> None:
    cluster.states = [running()]
    store = Store()
    pod_of("try-1", store)
    assert list(find_orphans(pods.list_workloads(), airflow(train="running"))) == []
    (work,) = find_orphans(pods.list_workloads(), airflow(train="failed"))
    pod_of("try-2", store)
    work.end()
    assert cluster.deleted == []
    (work,) = find_orphans(pods.list_workloads(), airflow(train="failed"))
    work.end()
    assert cluster.deleted == [(work.name, 60)]


def test_a_process_ends_with_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_RUNTIME", "process")
    assert end_orphans.function() == []


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
