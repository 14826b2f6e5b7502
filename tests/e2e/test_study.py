"""The Dag study under a real scheduler: it starts when the last arm of table 5 is in, and by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from include.ablations import TABLE_5
from tests.e2e.server import Call, airflow_ui, to_end, wait_for
from tests.tasks.stages.studies.study.homes import arm

pytestmark = pytest.mark.long

RUNS = "/api/v2/dags/study/dagRuns"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the arms of two studies, trained beforehand."""
    home = tmp_path_factory.mktemp("home")
    for name in TABLE_5:
        arm(home, name, study="SST-2")
    arm(home, "base", study="CoLA")
    return home


@pytest.fixture(scope="module")
def call(home: Path) -> Iterator[Call]:
    with airflow_ui(home) as call:
        yield call


def come_in(call: Call, home: Path, name: str, study: str = "SST-2") -> None:
    """An arm is in: the event that the Dag ablation ends with."""
    (asset,) = call("GET", "/api/v2/assets?name_pattern=ablation-arm")["assets"]
    mark = json.loads((home / f"runs/ablation-{study}-{name}-1/arm.json").read_text())
    call("POST", "/api/v2/assets/events", {"asset_id": asset["id"], "partition_key": f"{study}/{name}", "extra": mark})


def report(call: Call, run: str) -> dict[str, Any]:
    """The result of the stage in a run that succeeds; its report opens."""
    state, tasks = to_end(call, run)
    assert state == "success", tasks
    path = tasks["study"]["path"]
    assert "<h1>" in call("GET", call("GET", f"{path}/links")["extra_links"]["Study"])
    result: dict[str, Any] = call("GET", f"{path}/xcomEntries/return_value?deserialize=true")["value"]
    return result


def test_it_starts_when_the_last_arm_of_table_5_is_in(call: Call, home: Path) -> None:
    wait_for(lambda: call("GET", "/api/v2/assets?name_pattern=ablation-arm")["assets"])
    for name in TABLE_5[:-1]:
        come_in(call, home, name)
    come_in(call, home, "base", "CoLA")  # of another study
    come_in(call, home, TABLE_5[0])  # again, and still one is missing
    assert call("GET", RUNS)["dag_runs"] == []
    come_in(call, home, TABLE_5[-1])
    (run,) = wait_for(lambda: call("GET", RUNS)["dag_runs"])
    assert (run["run_type"], run["partition_key"]) == ("asset_triggered", "SST-2")
    result = report(call, f"{RUNS}/{run['dag_run_id']}")
    assert (result["study"], result["configurations"]) == ("SST-2", 5)


def test_by_hand_it_takes_the_study_of_the_newest_arm(call: Call, home: Path) -> None:
    come_in(call, home, "base", "CoLA")
    run = call("POST", RUNS, {"logical_date": None, "conf": {}})
    result = report(call, f"{RUNS}/{run['dag_run_id']}")
    assert (result["study"], result["configurations"]) == ("CoLA", 1)
