"""The Dag ablation: backfills by a real scheduler, on a slice of the bundled corpus and with real trainings.

One story in order: a study of two arms, one of them broken; the same repaired; another seed beside it, cancelled
half-way; a run by hand.
"""

from __future__ import annotations

import gzip
import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from include.ablations import day, study
from tests.e2e.server import Call, airflow_ui, own_checkout, wait_for

pytestmark = pytest.mark.long

#: The second needs a text that the checkout does not hold.
ARMS = ("frozen", "domain-pretraining")
STUDY = {
    "preprocessing.sample": 0.02, "preprocessing.max_length": 32, "pretraining.batch_size": 8,
    "training.epochs": 1, "training.evaluations": 1, "training.ranks": 1,
}  # fmt: skip
SHARED = ("validate", "preprocess")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def call(home: Path, checkout: Path) -> Iterator[Call]:
    with airflow_ui(home, checkout) as call:
        wait_for(lambda: "ablation" in [dag["dag_id"] for dag in call("GET", "/api/v2/dags")["dags"]])
        yield call


def body(first: str, last: str, behavior: str = "none", **conf: Any) -> dict[str, Any]:
    return {
        "dag_id": "ablation",
        "from_date": f"{day(first)}T00:00:00Z",
        "to_date": f"{day(last)}T00:00:00Z",
        "reprocess_behavior": behavior,
        "max_active_runs": 1,
        "dag_run_conf": STUDY | conf,
    }


def backfill(call: Call, behavior: str, **conf: Any) -> dict[str, str]:
    """Run the arms to their end: partition key to state, of the runs that this backfill made."""
    made = call("POST", "/api/v2/backfills", body(*ARMS, behavior, **conf))
    wait_for(lambda: call("GET", f"/api/v2/backfills/{made['id']}")["completed_at"])
    return {run["partition_key"]: run["state"] for run in runs(call) if run["conf"] == made["dag_run_conf"]}


def runs(call: Call) -> list[dict[str, Any]]:
    """All runs, the newest last; every one is named by its configuration."""
    found = call("GET", "/api/v2/dags/ablation/dagRuns?order_by=id")["dag_runs"]
    assert all(f"__{run['partition_key']}__" in run["dag_run_id"] for run in found)
    return list(found)


def arms(home: Path) -> list[dict[str, Any]]:
    """The records of the arms that are in, the oldest first."""
    files = sorted(home.glob("runs/*/arm.json"), key=lambda file: file.stat().st_mtime)
    assert [json.loads(file.read_text())["run"] for file in files] == [file.parent.name for file in files]
    return [json.loads(file.read_text()) for file in files]


def made(home: Path, stage: str) -> int:
    return sum(1 for _ in home.glob(f"artifacts/{stage}/*/manifest.json"))


def refusal(call: Call, path: str, sent: dict[str, Any]) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as error:
        call("POST", path, sent)
    return error.value.code, error.value.read().decode()


def test_what_a_backfill_refuses(call: Call) -> None:
    beyond = body("base", "full") | {"to_date": "2000-12-31T00:00:00Z"}
    for path in ("/api/v2/backfills", "/api/v2/backfills/dry_run"):
        code, message = refusal(call, path, beyond)
        assert code == 422 and "is not the day of a configuration: choose days from 2000-01-01 (base) to" in message
    code, message = refusal(call, "/api/v2/backfills", body("base", "full", seed=-1))
    assert code == 422 and "seed" in message
    hand = {"logical_date": None, "partition_key": "fill"}
    code, message = refusal(call, "/api/v2/dags/ablation/dagRuns", hand)
    assert code == 400 and "unknown configuration 'fill': write one of base, dynamic-batching" in message
    assert runs(call) == []


def test_a_dry_run_lists_the_arms(call: Call) -> None:
    listed = call("POST", "/api/v2/backfills/dry_run", body("base", "gradient-compression"))["backfills"]
    assert [arm["partition_key"] for arm in listed][::3] == ["base", "gradient-compression"]


def test_an_arm_each_and_what_they_share_is_made_once(call: Call, home: Path) -> None:
    assert backfill(call, "none") == {"frozen": "success", "domain-pretraining": "failed"}
    (arm,) = arms(home)
    assert arm | {"run": "", "finished": ""} == {
        "study": study("movie-reviews", STUDY), "configuration": "frozen", "task": "movie-reviews", "seed": 1,
        "run": "", "finished": "",
    }  # fmt: skip
    assert [made(home, stage) for stage in SHARED] == [1, 1]
    training = json.loads((home / "runs" / arm["run"] / "run.json").read_text())["experiment"]["training"]
    assert (training["freeze_layers"], training["epochs"], training["seed"]) == (4, 1, 1)
    (broken,) = home.glob("runs/*domain-pretraining*/run.json")
    assert "put the text there" in json.loads(broken.read_text())["stages"]["pretrain"]["message"]
    (event,) = call("GET", "/api/v2/assets/events")["asset_events"]
    assert event["extra"] == arm and event["partition_key"] == f"{arm['study']}/frozen"


@pytest.mark.long
def test_a_broken_arm_runs_again_alone_once_it_is_repaired(call: Call, home: Path, checkout: Path) -> None:
    text = checkout / "data/imdb/unsupervised.txt.gz"
    text.parent.mkdir(parents=True)
    text.write_bytes(gzip.compress(b"A slow but moving portrait of a family in its last summer.\n" * 100))
    before = len(runs(call))
    assert backfill(call, "failed")["domain-pretraining"] == "success"
    assert [run["partition_key"] for run in runs(call)[before:]] == ["domain-pretraining"]
    assert [arm["configuration"] for arm in arms(home)] == list(ARMS)
    assert [made(home, stage) for stage in SHARED] == [1, 1]


@pytest.mark.long
def test_a_second_study_lies_beside_the_first_and_is_cancelled(call: Call, home: Path) -> None:
    begun = call("POST", "/api/v2/backfills", body(*ARMS, "completed", seed=2))
    code, message = refusal(call, "/api/v2/backfills", body(*ARMS, "completed", seed=3))
    assert code == 409 and "already a running backfill" in message
    wait_for(lambda: runs(call)[-2]["state"] == "running")
    call("PUT", f"/api/v2/backfills/{begun['id']}/cancel")
    wait_for(lambda: len(arms(home)) == 3)
    assert (runs(call)[-1]["partition_key"], runs(call)[-1]["state"]) == ("domain-pretraining", "failed")
    first, _, second = arms(home)
    assert (second["configuration"], second["seed"], second["study"]) == ("frozen", 2, first["study"])
    assert second["run"] != first["run"] and made(home, "train") == 3
    assert [made(home, stage) for stage in SHARED] == [1, 1]


def test_by_hand_a_run_needs_a_configuration(call: Call) -> None:
    run = call("POST", "/api/v2/dags/ablation/dagRuns", {"logical_date": None, "conf": STUDY})
    path = f"/api/v2/dags/ablation/dagRuns/{run['dag_run_id']}"
    assert wait_for(lambda: {"failed": "failed"}.get(call("GET", path)["state"]))
    log = json.dumps(call("GET", f"{path}/taskInstances/validate/logs/1?full_content=true"))
    assert "this run names no configuration: start a backfill" in log
