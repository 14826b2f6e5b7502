"""The stage track with a real MLflow: what it holds of a run, once, and how what it missed is caught up."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, ViewType
from mlflow.entities import Run as MlflowRun

from include.artifacts import Artifact, locked, write_json
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.__main__ import main
from tasks.runner import run_stage
from tests.tasks.stages.upkeep.track.runs import made
from tests.tasks.tracking.retrained import challenged, ingested, retrain, stage

TOLD = ("outcome", "version", "decision")
pytestmark = pytest.mark.usefixtures("database")


def track(run: Run) -> Artifact:
    return run_stage("track", Experiment.model_validate(run.record()["experiment"]), run)


def held(home: Path, view: int = ViewType.ACTIVE_ONLY) -> dict[str, MlflowRun]:
    """The runs that MLflow holds, by name; it holds none twice."""
    client = MlflowClient(f"sqlite:///{home}/mlflow/mlflow.db")
    experiments = [one.experiment_id for one in client.search_experiments()]
    found = client.search_runs(experiments, run_view_type=view)
    assert view != ViewType.ACTIVE_ONLY or len({run.info.run_name for run in found}) == len(found)
    return {str(run.info.run_name): run for run in found}


def steps(home: Path, run: MlflowRun, key: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in history(home, run, key)]


def history(home: Path, run: MlflowRun, key: str) -> list[Metric]:
    """The points of a metric in the order of their steps."""
    client = MlflowClient(f"sqlite:///{home}/mlflow/mlflow.db")
    return sorted(client.get_metric_history(run.info.run_id, key), key=lambda point: (point.step, point.value))


def test_a_run_is_held_with_all_that_is_known_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path, "first", training__epochs=2)
    assert main(["track", "--run", str(run.folder)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    (found,) = held(tmp_path).values()
    assert result["mlflow_run"] == found.info.run_id and result["url"] == "" and result["warnings"] == []
    assert (found.info.run_name, found.info.status) == ("first", "FINISHED")
    assert found.info.artifact_uri.startswith(f"{tmp_path}/mlflow/artifacts/")
    params = {"training.epochs": "2.0", "data.task": "movie-reviews", "submission.runs": "[]", "gate.accuracy": "null"}
    assert found.data.params.items() >= params.items()
    assert steps(tmp_path, found, "train/loss") == [(1, 0.7), (2, 0.4)]
    times = [point.timestamp for point in history(tmp_path, found, "train/loss")]
    assert times[1] == 1700000000123 < times[0]  # the first line has none: it is given the time of the artifact
    assert not {"train/time", "dev/shares"} & found.data.metrics.keys()
    assert steps(tmp_path, found, "train/grad_norm") == [(2, 1.5)] and steps(tmp_path, found, "dev/accuracy")
    totals = {"training/rows_per_second": 100.0, "training/memory": 1e9, "evaluate/accuracy": 0.8, "seconds/train": 60}
    assert found.data.metrics.items() >= totals.items() and "evaluate/matthews" not in found.data.metrics
    key = run.record()["stages"]["validate"]["key"]
    tags = {
        "gate": "passed", "mlflow.source.git.commit": "a1b2c3", "data.version": key, "data.fingerprint": "5eed",
        "validate.key": key, "validate.artifact": f"artifacts/validate/{key}", "export.exit_code": "0",
        "folder": str(run.folder),
    }  # fmt: skip
    assert found.data.tags.items() >= tags.items()


def test_tracking_twice_makes_one_run(tmp_path: Path) -> None:
    run = made(tmp_path, "first", passed=False)
    first = track(run)
    assert track(run).path == first.path
    failed = held(tmp_path)["first"]
    assert failed.info.status == "FAILED" and failed.data.tags["gate"] == "failed"
    assert failed.data.tags["gate.message"] == "accuracy 0.8 is below 0.85"
    made(tmp_path, "first")
    assert track(run).manifest.result["mlflow_run"] == failed.info.run_id
    mended = held(tmp_path)["first"]
    assert mended.info.status == "FINISHED" and mended.data.tags["gate"] == "passed"
    assert "gate.message" not in mended.data.tags and len(steps(tmp_path, mended, "train/loss")) == 2


def test_a_point_of_a_metric_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of MLflow 2 refuse a point that they have: a run that went on could not be tracked any more."""
    sent: list[tuple[str, int, int]] = []
    log_batch = MlflowClient.log_batch

    def noted(client: MlflowClient, run: str, metrics: Sequence[Metric] = (), **others: Any) -> Any:
        sent.extend((metric.key, metric.step, metric.timestamp) for metric in metrics)
        return log_batch(client, run, metrics=metrics, **others)

    monkeypatch.setattr(MlflowClient, "log_batch", noted)
    track(made(tmp_path, "first", last="train"))
    assert held(tmp_path)["first"].info.status == "KILLED" and "evaluate/accuracy" not in {key for key, _, _ in sent}
    track(made(tmp_path, "first"))
    assert held(tmp_path)["first"].info.status == "FINISHED"
    assert len(sent) == len(set(sent)) and {"train/loss", "evaluate/accuracy"} <= {key for key, _, _ in sent}


@pytest.mark.parametrize(
    "address",
    ["foo://bar", "localhost:5000", "http//host", "http://", "http://host:99999", "http://[x", "mlruns", "databricks"],
)
def test_an_address_of_mlflow_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with pytest.raises(
        BadInput, match=rf"^MLFLOW_TRACKING_URI={re.escape(address)} is not an address .* http://mlflow"
    ):
        track(made(tmp_path, "first"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "foo://user:secret@bar")
    with pytest.raises(BadInput, match="MLFLOW_TRACKING_URI=bar is not") as refused:
        track(Run(tmp_path / "runs/first"))
    assert "secret" not in str(refused.value)


def test_a_damaged_database_is_bad_input_and_a_busy_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, busy = made(tmp_path, "first"), tmp_path / "busy.db"
    shutil.copyfile(tmp_path / "mlflow/mlflow.db", busy)
    (tmp_path / "mlflow/mlflow.db").write_bytes(b"something else" * 100)
    with pytest.raises(
        BadInput, match=r"the database of MLflow at sqlite:.*mlflow\.db is damaged or of another version"
    ):
        track(run)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{busy}?timeout=0.1")
    with closing(sqlite3.connect(busy, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Transient, match=r"another try may succeed: .*database is locked"):
            track(run)
    assert track(run).manifest.result["mlflow_run"]


def test_a_database_whose_driver_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "mysql://user:secret@127.0.0.1:1/mlflow")
    with pytest.raises(BadInput, match=r"MLflow at mysql://127\.0\.0\.1:1/mlflow needs a driver .*: No module named"):
        track(made(tmp_path, "first"))


def test_another_training_in_the_same_folder_is_another_mlflow_run(tmp_path: Path) -> None:
    first = track(made(tmp_path, "first")).manifest.result["mlflow_run"]
    (tmp_path / "runs/first/run.json").unlink()
    again = track(made(tmp_path, "first", training__seed=7)).manifest.result["mlflow_run"]
    assert held(tmp_path)["first"].info.run_id == again != first
    assert [run.info.run_id for run in held(tmp_path, ViewType.DELETED_ONLY).values()] == [first]


def test_an_arm_is_finished_without_export_and_a_run_that_broke_off_is_not(tmp_path: Path) -> None:
    arm = made(tmp_path, "arm", last="evaluate")
    write_json(arm.folder / "arm.json", {"study": "SST-2", "configuration": "full", "seed": 3})
    for run in (arm, made(tmp_path, "broken", last="evaluate")):
        track(run)
    found = held(tmp_path)
    assert found["arm"].info.status == "FINISHED" and found["arm"].data.tags["arm.configuration"] == "full"
    assert found["broken"].info.status == "KILLED"


def test_what_mlflow_missed_is_caught_up_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        uri = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:password@{uri}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        missed = made(tmp_path, "missed")
        with pytest.raises(Transient, match=f"MLflow at http://{uri} does not accept the run; try again") as error:
            track(missed)
    assert "password" not in str(error.value) + missed.file.read_text()
    assert missed.record()["stages"]["track"]["exit_code"] == 75
    made(tmp_path, "under-way", last="train")
    Run(tmp_path / "runs/refused").fail("validate", BadInput("unknown key training.epoch"), experiment=None)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert track(made(tmp_path, "second")).manifest.result["caught_up"] == ["missed"]
    assert {name: run.info.status for name, run in held(tmp_path).items()} == dict.fromkeys(
        ["missed", "second"], "FINISHED"
    )
    assert track(made(tmp_path, "third")).manifest.result["caught_up"] == ["missed"]  # looked at, and left as it is


@pytest.mark.parametrize(
    "damage", ['{"stages": {', '{"run": "x", "stages": []}', '{"run": "x", "stages": {"gate": 3}}']
)
def test_a_damaged_record_is_named_and_stops_no_other(tmp_path: Path, damage: str) -> None:
    made(tmp_path, "damaged").file.write_text(damage)
    missed = made(tmp_path, "missed")
    (missed.store.path("train", missed.record()["stages"]["train"]["key"]) / "metrics.jsonl").write_text("{")
    result: dict[str, Any] = track(made(tmp_path, "sound", training__seed=7)).manifest.result
    assert list(held(tmp_path)) == ["sound"]
    first, second = result["warnings"]
    assert first.startswith("damaged is not tracked: ") and "run.json is damaged: remove" in first
    assert "missed is not tracked: " in second and "metrics.jsonl is missing or damaged" in second


def test_a_run_without_stages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the run new has nothing to track yet: run the stage validate first"):
        run_stage("track", Experiment(), Run(tmp_path / "runs/new"))


def test_a_run_that_only_took_in_data_has_nothing_to_track(tmp_path: Path) -> None:
    made(tmp_path, "missed")
    result = track(ingested(tmp_path, "quiet")).manifest.result
    assert result["mlflow_run"] == "" and result["note"] == "the run created no model, so there is nothing to track"
    assert list(held(tmp_path)) == result["caught_up"] == ["missed"]


def test_what_became_of_a_retrained_model_is_held(tmp_path: Path) -> None:
    run = retrain(tmp_path, "first")
    assert held(tmp_path)["first"].info.status == "RUNNING"  # register has told of it
    track(run)
    track(retrain(tmp_path, "second", "undecided", training__seed=7))
    track(challenged(tmp_path, "third", "worse", training__seed=8))
    found = held(tmp_path)
    told = {name: (run.info.status, *map(run.data.tags.get, TOLD)) for name, run in found.items()}
    assert told == {
        "first": ("FINISHED", "first", "1", "approved"),
        "second": ("FINISHED", "undecided", "2", "held"),
        "third": ("FAILED", "worse", None, None),
    }
    assert found["first"].data.tags["promote.key"] == run.artifact("promote").manifest.key


def test_a_run_that_has_undone_its_promotion_has_failed(tmp_path: Path) -> None:
    retrain(tmp_path, "first")
    run = retrain(tmp_path, "second", training__seed=7)
    stage("rollback", run)
    track(run)
    found = held(tmp_path)["second"]
    assert (found.info.status, found.data.tags["rolled_back"]) == ("FAILED", "to version 1")
    stage("promote", run)  # somebody has mended the service, and cleared the Airflow task
    stage("rollback", Run(tmp_path / "runs/by-hand"))
    track(run)
    found = held(tmp_path)["second"]
    assert found.info.status == "FINISHED" and "rolled_back" not in found.data.tags
    assert "by-hand" not in held(tmp_path)


def test_two_at_once_do_not_write_one_run_twice(tmp_path: Path) -> None:
    run = made(tmp_path, "first")
    with locked(run.store.root / "track"), pytest.raises(Transient, match="is in use by process"):
        track(run)
