"""`make ui`: a real scheduler and web server, a run triggered through the REST API, its links in the browser."""

from __future__ import annotations

import sqlite3
import time
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from scripts.server import Call, airflow_ui, to_end, trigger

CONF = {"preprocessing.sample": 0.1, "training.epochs": 1}


@pytest.fixture(scope="module")
def call(home: Path) -> Iterator[Call]:
    with airflow_ui(home) as call:
        yield call


def _run_to_end(call: Call, conf: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return to_end(call, trigger(call, conf))


def test_a_triggered_run_succeeds_its_report_opens_and_other_dags_hear_of_it(call: Call, home: Path) -> None:
    state, tasks = _run_to_end(call, {**CONF, "gate.accuracy": 0.55})
    assert state == "success", tasks
    result = call("GET", f"{tasks['gate']['path']}/xcomEntries/return_value?deserialize=true")["value"]
    assert result["passed"] is True
    links = call("GET", f"{tasks['evaluate']['path']}/links")["extra_links"]
    assert "<html" in call("GET", links["Report"])
    source = quote(tasks["evaluate"]["dag_run_id"])
    (event,) = call("GET", f"/api/v2/assets/events?source_run_id={source}")["asset_events"]
    assert event["partition_key"] == "movie-reviews"
    assert (home / "runs" / event["extra"]["run"] / "run.json").is_file()


def test_a_gate_too_high_ends_red_at_the_gate_without_a_retry(call: Call) -> None:
    state, tasks = _run_to_end(call, {**CONF, "gate.accuracy": 0.999})
    assert state == "failed"
    assert tasks["gate"]["state"] == "failed" and tasks["gate"]["try_number"] == 1
    assert tasks["predict"]["state"] == "upstream_failed"


def test_the_api_waits_for_a_process_that_writes_for_a_while(call: Call, home: Path) -> None:
    with closing(sqlite3.connect(home / "airflow/airflow.db", timeout=120)) as database, ThreadPoolExecutor() as pool:
        database.execute("BEGIN IMMEDIATE")
        answer = pool.submit(call, "POST", "/api/v2/variables", {"key": "waited", "value": "for the database"})
        time.sleep(10)  # SQLite itself waits for 5 seconds.
        database.rollback()
    assert answer.result()["value"] == "for the database"


def test_a_wrong_value_is_refused_by_the_form(call: Call) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        call("POST", "/api/v2/dags/finetune/dagRuns", {"logical_date": None, "conf": {"training.epochs": -1}})
    assert refusal.value.code == 400
    assert "training.epochs" in refusal.value.read().decode()
