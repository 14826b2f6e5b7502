"""The metrics for Prometheus: who may read them, and what they say of runs, champions, streams, and the disk."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from include.artifacts import write_json
from spark_bert.deployment.places import run_folder
from spark_bert.web.panel.index import INDEX
from tests.airflow_home import login

ADDRESS = "/spark-bert/metrics"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    (tmp_path / "artifacts").mkdir()
    return tmp_path


def entry(exit_code: int = 0, ago: float | None = None, reused: bool = False, **result: Any) -> dict[str, Any]:
    """What a record says of a stage that has ended so many seconds ago; None: a record from before it said when."""
    times = {} if ago is None else {"ended": time.time() - ago, "reused": reused}
    return {"key": "1", "exit_code": exit_code, "message": "", "result": result, **times}


def write_run(
    run: Path | tuple[str, str], written: float = 0, model: str = "all-MiniLM-L6-v2", **stages: dict[str, Any]
) -> Path:
    """Write a record that was last changed so many seconds ago, in a folder or for the ids of a Dag run."""
    folder = run if isinstance(run, Path) else run_folder(*run)
    ids = {} if isinstance(run, Path) else dict(zip(("dag_id", "run_id"), run, strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    experiment = {"data": {"task": "sst2"}, "model": {"name": model}}
    write_json(folder / "run.json", {"run": folder.name, **ids, "experiment": experiment, "stages": stages})
    os.utime(folder / "run.json", times=(time.time() - written,) * 2)
    return folder


class Scraped(dict[tuple[str, ...], float]):
    """The samples of a scrape: the value of ("name", "label", ...), with the labels' values in the order of names."""

    def __init__(self, text: str) -> None:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name.removeprefix("spark_bert_"), *(sample.labels[name] for name in sorted(sample.labels))
                assert key not in self, f"{key} is there twice"
                self[key] = sample.value


def scrape(server: TestClient) -> Scraped:
    answer = server.get(ADDRESS, headers=login("viewer"))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scraped(answer.text)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}, {"Cookie": "_token=nonsense"}])
def test_without_a_login_nothing_is_told(server: TestClient, home: Path, headers: dict[str, str]) -> None:
    answer = server.get(ADDRESS, headers=headers)
    assert answer.status_code in (401, 403) and "spark_bert" not in answer.text


def test_the_right_that_is_asked_is_that_of_the_clusters_activity(
    server: TestClient, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    assert server.get(ADDRESS, headers=login(None)).status_code == 403

    def only_activity(*, access_view: Any, user: Any) -> bool:
        return (access_view.name, user.get_name()) == ("CLUSTER_ACTIVITY", "somebody")

    monkeypatch.setattr(type(get_auth_manager()), "is_authorized_view", staticmethod(only_activity))
    assert server.get(ADDRESS, headers=login(None)).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_is_read_only(server: TestClient, home: Path, method: str) -> None:
    assert server.request(method, ADDRESS, headers=login("viewer")).status_code == 405


def test_an_empty_home_has_no_runs(server: TestClient, home: Path) -> None:
    found = scrape(server)
    assert found["damaged_records",] == 0 and found["disk_bytes",] > found["disk_free_bytes",] > 0
    assert not [key for key in found if key[0] in ("runs", "stages", "stream_state")]


def test_runs_and_stages_are_counted_by_outcome(server: TestClient, home: Path) -> None:
    write_run(("finetune", "1"), 100, train=entry(), gate=entry(3))
    write_run(("finetune", "2"), 50, train=entry(), gate=entry(3, ago=55), track=entry())
    write_run(("finetune", "3"), 10, train=entry(), gate=entry())
    write_run(("retrain", "1"), 10, validate=entry(2), nonsense=entry())
    write_run(home / "runs/by-hand", 10, train=entry(75), predict=entry(143), score=entry(9))
    found = scrape(server)
    runs = {key[1:]: value for key, value in found.items() if key[0] == "runs"}
    assert runs == {
        ("finetune", "refused"): 2, ("finetune", "done"): 1, ("retrain", "bad_input"): 1, ("", "transient"): 1,
    }  # fmt: skip
    stages = {key[1:]: value for key, value in found.items() if key[0] == "stages"}
    assert stages == {
        ("finetune", "done", "train"): 3, ("finetune", "refused", "gate"): 2, ("finetune", "done", "gate"): 1,
        ("finetune", "done", "track"): 1, ("retrain", "bad_input", "validate"): 1, ("", "transient", "train"): 1,
        ("", "stopped", "predict"): 1, ("", "failed", "score"): 1,
    }  # fmt: skip
    ended = found["stage_last_end_timestamp_seconds", "finetune", "refused", "gate"]
    assert time.time() - ended == pytest.approx(55, abs=4)


def test_the_last_run_of_each_kind_tells_speed_time_and_dev_metric(server: TestClient, home: Path) -> None:
    for run, accuracy, speed in (("old", 0.8, 50.0), ("new", 0.9, 100.0)):
        write_run(
            ("finetune", run), {"old": 90, "new": 9}[run],
            train=entry(seconds=10 / accuracy, rows_per_second=speed), predict=entry(rows_per_second=2 * speed),
            evaluate=entry(metrics={"accuracy": accuracy, "f1": None}),
        )  # fmt: skip
    found_it = entry(ago=7, reused=True, seconds=1.0, rows_per_second=1.0)
    write_run(("finetune", "newest"), 7, train=found_it)
    write_run(("finetune", "other"), 5, model="mpnet", evaluate=entry(metrics={"accuracy": 0.95}))
    found = scrape(server)
    mini = ("finetune", "encoder", "all-MiniLM-L6-v2")
    assert found["rows_per_second", *mini, "train", "sst2"] == 100
    assert found["rows_per_second", *mini, "predict", "sst2"] == 200
    assert found["stage_seconds", "finetune", "train"] == pytest.approx(10 / 0.9)
    dev = {key[1:]: value for key, value in found.items() if key[0] == "dev_metric"}
    assert dev == {
        ("finetune", "encoder", "accuracy", "all-MiniLM-L6-v2", "sst2"): 0.9,
        ("finetune", "encoder", "accuracy", "mpnet", "sst2"): 0.95,
    }  # fmt: skip


def test_the_champion_is_what_the_last_run_has_seen(server: TestClient, home: Path) -> None:
    asked = entry(model="reviews", version="7")
    write_run(("retrain", "1"), 90, champion=asked, promote=entry(model="reviews", champion="8"))
    assert scrape(server)["champion_version", "reviews"] == 8
    write_run(("retrain", "2"), 60, champion=entry(model="new", version=""))
    rolled_back = entry(model="reviews", version="7", left="8")
    write_run(("rollback", "1"), 30, rollback=rolled_back)
    found = scrape(server)
    assert found["champion_version", "reviews"] == 7 and ("champion_version", "new") not in found


def test_a_record_is_read_again_when_it_changes_and_forgotten_when_it_is_gone(server: TestClient, home: Path) -> None:
    folder = write_run(("finetune", "1"), 90, train=entry())
    assert scrape(server)["runs", "finetune", "done"] == 1
    write_run(("finetune", "1"), 50, train=entry(), gate=entry(3))
    assert scrape(server)["runs", "finetune", "refused"] == 1
    (folder / "run.json").unlink()
    assert not [key for key in scrape(server) if key[0] == "runs"]


def test_what_the_records_prove_of_their_dag(server: TestClient, home: Path) -> None:
    """A stage may write the name of another Dag, and old records tell none."""
    proven = write_run(("my-finetune", "1"), train=entry())
    lie = json.loads((proven / "run.json").read_text()) | {"dag_id": "finetune"}
    write_json(write_run(("retrain", "1"), train=entry()) / "run.json", lie)
    write_run(run_folder("finetune", "old"), train=entry())
    found = scrape(server)
    assert {key[1:]: found[key] for key in found if key[0] == "runs"} == {("my-finetune", "done"): 1, ("", "done"): 2}


HOSTILE = 'a"} 1\nspark_bert_runs{dag="\\'


def test_hostile_texts_stay_the_values_of_labels(server: TestClient, home: Path) -> None:
    evaluated = entry(metrics={HOSTILE: 1.0, "huge": 10**400, "text": "1"})
    write_run(("finetune", "1"), model=HOSTILE, evaluate=evaluated)
    (home / "streams" / os.fsdecode(b"caf\xe9")).mkdir(parents=True)
    write_json(home / "streams" / os.fsdecode(b"caf\xe9") / "heartbeat.json", {"state": HOSTILE, "rows": "many"})
    found = scrape(server)
    assert [key[1:] for key in found if key[0] == "dev_metric"] == [("finetune", "encoder", HOSTILE, HOSTILE, "sst2")]
    assert found["stream_state", HOSTILE, "caf?"] == 1 and math.isnan(found["stream_rows_total", "labeled", "caf?"])
    assert [key for key in found if key[0] == "runs"] == [("runs", "finetune", "done")]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stages": 7}', '{"stages": {"train": {}}}', "[" * 99_999])
def test_damaged_files_are_counted_and_stop_nothing(server: TestClient, home: Path, text: str) -> None:
    (write_run(("finetune", "1")) / "run.json").write_text(text)
    write_run(("finetune", "2"), train=entry())
    (home / "streams/reviews/windows").mkdir(parents=True)
    for name in ("heartbeat.json", "windows/0-1.json", "windows/none.json"):
        (home / "streams/reviews" / name).write_text(text)
    found = scrape(server)
    assert found["damaged_records",] == 1 and found["runs", "finetune", "done"] == 1
    assert not [key for key in found if key[0].startswith("stream_drift")]


def test_links_are_not_followed(server: TestClient, home: Path) -> None:
    elsewhere = write_run(home / "elsewhere/finetune-1-01234567", train=entry())
    for link, target in (("runs/finetune-1-01234567", elsewhere), ("streams/reviews", elsewhere)):
        (home / link).parent.mkdir()
        (home / link).symlink_to(target)
    write_json(elsewhere / "heartbeat.json", {"state": "running"})
    assert not [key for key in scrape(server) if key[0] in ("runs", "stream_state")]


def test_a_stream_tells_heartbeat_rows_and_drift(server: TestClient, home: Path) -> None:
    folder = home / "streams/reviews"
    (folder / "windows").mkdir(parents=True)
    write_json(folder / "heartbeat.json", {"state": "running", "rows": 1040, "aside": 3})
    os.utime(folder / "heartbeat.json", times=(time.time() - 40,) * 2)
    for window, value in (("0-9", 0.5), ("10-12", 0.3)):
        figure = {"name": "length", "value": value, "limit": 0.25}
        write_json(folder / f"windows/{window}.json", {"figures": [figure, "nonsense"]})
    found = scrape(server)
    assert time.time() - found["stream_heartbeat_timestamp_seconds", "reviews"] == pytest.approx(40, abs=5)
    assert found["stream_state", "running", "reviews"] == 1
    assert found["stream_rows_total", "labeled", "reviews"] == 1040
    assert found["stream_rows_total", "set_aside", "reviews"] == 3
    assert found["stream_drift", "length", "reviews"] == 0.3
    assert found["stream_drift_limit", "length", "reviews"] == 0.25


def test_many_runs_are_scraped_in_no_time(server: TestClient, home: Path) -> None:
    """Prometheus waits for ten seconds: 10,000 runs take less than half a second once they are known."""
    stages = {name: entry(seconds=1.0) for name in ("validate", "preprocess", "train", "evaluate", "gate")}
    for number in range(1000):
        folder = run_folder("finetune", str(number))
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"dag_id": "finetune", "run_id": str(number), "stages": stages}))
    assert scrape(server)["runs", "finetune", "done"] == 1000
    started = time.perf_counter()
    assert len(INDEX.recorded()) == 1000
    assert time.perf_counter() - started < 0.2
