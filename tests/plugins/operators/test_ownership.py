"""Which try a container belongs to: who attaches to it, who may stop it, and when a fresh one is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from include.stages import BadInput
from spark_bert.deployment.containers import user
from spark_bert.deployment.places import deployment
from spark_bert.operators.docker_containers import STOPPING
from tests.plugins.operators.daemon import RUN, Daemon, context, operator

pytestmark = pytest.mark.usefixtures("home")
AFRESH = ["rename try-1", "stop 60 try-1.ending", "remove try-1.ending", "create try-2", "start try-2"]


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


def test_a_new_container_says_whose_it_is_and_holds_no_secret(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "never to be seen")
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "never to be seen")
    daemon.start_of(context("try-1"))
    assert daemon.asked == ["create try-1", "start try-1"]
    (created,) = daemon.created
    assert created["name"].startswith(f"spark-bert-stage-{deployment()}.train.") and created["name"].endswith(".try-1")
    assert created["labels"] == {
        "spark-bert.deployment": deployment(), "spark-bert.dag": "finetune", "spark-bert.run": RUN,
        "spark-bert.task": "train", "spark-bert.map": "-1", "spark-bert.generation": "2.0", "spark-bert.stage": "train",
    }  # fmt: skip
    assert created["user"] == ":".join(map(str, user()))
    assert created["stop_timeout"] == 60 and created["use_config_proxy"] is False
    told = {"AIRFLOW_CTX_DAG_ID": "finetune", "AIRFLOW_CTX_DAG_RUN_ID": RUN}
    assert created["environment"].items() >= told.items()
    assert set(created["environment"]) == {"SPARK_BERT_HOME", "SPARK_BERT_CACHE", "HF_HOME", *told}
    assert "never to be seen" not in str(created)


@pytest.mark.parametrize("status", ["running", "paused", "exited"])
def test_the_next_try_takes_the_container_over(status: str, daemon: Daemon) -> None:
    first = daemon.start_of(context("try-1"))
    daemon.set(first.name, status)
    second = daemon.start_of(context("try-2"))
    assert daemon.asked[2:] == ["rename try-1"] and list(daemon.containers_) == [second.name]


def test_a_try_that_has_lost_its_container_stops_nothing(daemon: Daemon) -> None:
    """The SIGTERM for the first try comes late: the second one is at work by then."""
    first = daemon.start_of(context("try-1"))
    second = daemon.start_of(context("try-2"))
    first.on_kill()
    assert daemon.inspect_container(second.name)["State"]["Running"]


def test_the_owner_stops_its_container(daemon: Daemon) -> None:
    daemon.start_of(context("try-1"))
    daemon.start_of(context("try-2")).on_kill()
    assert daemon.asked[3:] == ["rename try-2", "stop 60 try-2.ending", "remove try-2.ending"]
    assert daemon.containers_ == {}


def test_what_is_being_stopped_is_awaited_and_not_taken_for_work(daemon: Daemon) -> None:
    """A task that is cleared while it runs is killed 5 seconds later; its container saves for up to a minute."""
    first = daemon.start_of(context("try-1"))
    daemon.rename(first.name, first.name + STOPPING)
    daemon.asked.clear()
    daemon.start_of(context("try-2"))
    assert daemon.asked == ["wait 120 try-1.ending", "remove try-1.ending", "create try-2", "start try-2"]


@pytest.mark.parametrize("cleared", [{"max_tries": 5}, {"clears": 1}])
@pytest.mark.parametrize("status", ["running", "exited"])
def test_a_cleared_task_starts_afresh(status: str, cleared: dict[str, int], daemon: Daemon) -> None:
    """A clear of a task that runs leaves its number of tries as it is; the worker may be lost, and stop nothing."""
    first = daemon.start_of(context("try-1"))
    daemon.set(first.name, status)
    daemon.asked.clear()
    daemon.start_of(context("try-2", **cleared))
    assert daemon.asked == AFRESH


def test_a_container_that_the_engine_is_removing_is_passed_over(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine lists it without a name."""
    daemon.start_of(context("try-1"))
    listed = [*daemon.containers(all=True, filters={"label": []}), {"Names": None, "Labels": {}}]
    monkeypatch.setattr(daemon, "containers", lambda **_: listed)
    daemon.start_of(context("try-2"))
    assert daemon.asked[2:] == ["rename try-1"]


def test_a_crash_and_other_work_are_cleared_away(daemon: Daemon) -> None:
    changes: list[tuple[str, Any]] = [("Cmd", ["train", "--experiment", "{1}"]), ("Image", "spark-bert/train:older")]
    for key, value in changes:
        first = daemon.start_of(context("try-1"))
        daemon.inspect_container(first.name)["Config"][key] = value
        daemon.asked.clear()
        daemon.start_of(context("try-2")).on_kill()
        assert daemon.asked[:5] == AFRESH
    for status, code in (("exited", 137), ("created", 0)):
        daemon.set(daemon.start_of(context("try-1")).name, status, code)
        daemon.asked.clear()
        daemon.start_of(context("try-2")).on_kill()
        assert daemon.asked[:5] == AFRESH


def test_mapped_tasks_other_runs_and_other_deployments_have_containers_of_their_own(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[dict[str, Any]] = [{}, {"map_index": 1}, {"run_id": "manual__2"}, {"task_id": "train_again"}]
    for changes in where:
        daemon.start_of(context("try-1", **changes))
    monkeypatch.setenv("SPARK_BERT_HOME", "/elsewhere")
    train = daemon.attempt(context("try-1"))
    assert not train._attach() and train.name not in daemon.containers_ and len(daemon.containers_) == 4
    assert not [call for call in daemon.asked if "ending" in call]


def test_a_deployment_has_the_name_of_its_home_or_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_home = deployment()
    monkeypatch.setenv("SPARK_BERT_HOME", f"{home}/other")
    assert deployment() != of_home and len(of_home) == 12
    monkeypatch.setenv("SPARK_BERT_DEPLOYMENT", "blue_2")
    assert deployment() == "blue_2"
    for wrong in ("a.b", "Blue", "-a", "x" * 33, "a/b"):
        monkeypatch.setenv("SPARK_BERT_DEPLOYMENT", wrong)
        with pytest.raises(BadInput, match="cannot be part of a container's name: write up to 32"):
            deployment()
    with pytest.raises(BadInput, match="SPARK_BERT_DEPLOYMENT="):  # when the Dag is loaded, not half-way through a run
        operator()
