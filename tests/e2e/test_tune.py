"""The Dag tune under a real scheduler: two workers, one of them killed, share a search, which ends in a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.server import Call, airflow_ui, to_end, trigger, wait_for

pytestmark = pytest.mark.long

#: A tiny search: what is tried is given by a line of the form and by search.space.
CONF = {
    "preprocessing.sample": 0.02, "preprocessing.max_length": 32, "training.evaluations": 1, "training.ranks": 1,
    "training.epochs": 1, "gate.accuracy": 0.0, "gate.beat_baseline": "no", "search.minutes": 30, "search.trials": 4,
    "search.seeds": 1, "workers": 2, "search.space": {"training.batch_size": [8, 16]},
    "tried.training.learning_rate": "1e-5 to 1e-3",
    **{f"tried.training.{name}": "" for name in ("epochs", "warmup", "layer_decay")},
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def call(home: Path) -> Iterator[Call]:
    with airflow_ui(home, SPARK_BERT_POOLS='{"training": 2}') as call:
        yield call


def workers(home: Path) -> list[psutil.Process]:
    """The processes of the stage search that run in this home."""
    found = ((process, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [
        process for process, command in found if command[1:4] == ["-m", "tasks", "search"] and str(home) in command[-1]
    ]


def trials(call: Call) -> dict[str, Any]:
    """What the panel shows of the only search, {} if there is none yet."""
    found = call("GET", "/spark-bert/quality/api/searches")["searches"]
    return call("GET", f"/spark-bert/quality/api/search?run={found[0]['run']}") if found else {}


def test_workers_share_a_search_and_one_that_is_killed_goes_on(call: Call, home: Path) -> None:
    run = trigger(call, CONF, "tune")
    live = wait_for(lambda: trials(call) if len(trials(call).get("trials", ())) > 1 else None)
    assert (live["state"], live["comparison"]) == ("running", None)
    assert "running" in {trial["state"] for trial in live["trials"]}
    sorted(workers(home), key=lambda process: process.create_time())[-1].kill()  # the stage, not its guard
    state, tasks = to_end(call, run)
    assert state == "success", tasks
    links = call("GET", f"{tasks['recommend']['path']}/links")["extra_links"]
    assert "<h1>" in call("GET", links["Search"])
    done = trials(call)
    assert (done["state"], len(done["trials"])) == ("done", 4)
    assert done["comparison"]["recommended"] in ("winner", "default") and done["comparison"]["seeds"] == [2]
    assert {trial["state"] for trial in done["trials"]} <= {"complete", "paused"}
    assert all(trial["run"] for trial in done["trials"])  # they are runs of the panel
    assert set(done["space"]) == {"training.learning_rate", "training.batch_size"}
    records = [json.loads(file.read_text()) for file in home.glob("runs/*/run.json")]
    assert sum("search" in record for record in records) >= 4
