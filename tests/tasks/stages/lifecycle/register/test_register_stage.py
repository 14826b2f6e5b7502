"""The stage register on a real MLflow: the version, its evidence, and that a training has one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from include.artifacts import MANIFEST, ArtifactStore, locked, sha256
from include.named_experiments import build
from include.runs import Run
from include.stages import Transient
from tasks.runner import run_stage
from tasks.tracking.registry import Version
from tests.tasks.tracking.retrained import (
    MODEL,
    challenged,
    champion,
    registry,
    retrain,
    stage,
    version,
)

pytestmark = pytest.mark.usefixtures("database")


def test_a_version_has_its_evidence_as_tags(tmp_path: Path) -> None:
    run = challenged(tmp_path, "first", data__path="data/movies")
    result = stage("register", run).manifest.result
    assert (result["model"], result["version"]) == (MODEL, "1") and champion(run) == ""
    train, validate, package = (run.artifact(name) for name in ("train", "validate", "package"))
    tags = {
        "train.key": train.manifest.key, "train.artifact": f"artifacts/train/{train.manifest.key}",
        "manifest.sha256": sha256(train.path / MANIFEST), "evaluate.key": run.artifact("evaluate").manifest.key,
        "package.key": package.manifest.key, "package.sha256": sha256(package.path / MANIFEST),
        "package.artifact": f"artifacts/package/{package.manifest.key}",
        "package.served": "torch-fp32", "package.forms": "torch-fp32", "metrics.accuracy": "0.8",
        "metrics.matthews": "null",
        "gate": "passed", "gate.checks": "gate.accuracy = 0.75: 0.8000",
        "challenge": "first", "challenge.champion": "", "challenge.difference": "0.01", "challenge.p": "0.4",
        "challenge.metrics": '{"accuracy": 0.8}', "data.version": validate.manifest.key, "data.path": "data/movies",
        "revision": "a1b2c3", "run": "first",
    }  # fmt: skip
    found = version(run, "1")
    assert {**found.tags, "entered": ""} == {**tags, "entered": ""}
    held = MlflowClient(f"sqlite:///{tmp_path}/mlflow/mlflow.db").get_run(found.run)
    assert (held.info.run_name, held.info.status, held.data.tags["gate"]) == ("first", "RUNNING", "passed")


def test_mlflow_has_the_package(tmp_path: Path) -> None:
    run = challenged(tmp_path, "first")
    found = version(run, stage("register", run).manifest.result["version"])
    database, package = f"sqlite:///{tmp_path}/mlflow/mlflow.db", run.artifact("package").path
    assert files_of(found, database) == files_below(package)


def files_of(found: Version, database: str) -> dict[str, bytes]:
    """The files that a version has in MLflow, by their paths."""
    source = MlflowClient(database).get_model_version(found.model, found.number).source or ""
    assert source.startswith(f"runs:/{found.run}/model-")
    return files_below(Path(download_artifacts(source, tracking_uri=database)))


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_another_package_of_a_training_is_a_version_of_its_own_and_takes_no_file_from_the_first(
    tmp_path: Path,
) -> None:
    retrain(tmp_path, "before", training__seed=7)
    run = retrain(tmp_path, "first")
    database = f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    before = files_of(version(run, "2"), database)
    again = challenged(tmp_path, "first", "not worse", package="int8.onnx")
    assert stage("register", again).manifest.result["version"] == "3"
    assert files_of(version(again, "3"), database).keys() == {"int8.onnx", MANIFEST}
    assert files_of(version(again, "2"), database) == before and champion(again) == "2"
    assert stage("register", again).manifest.result["version"] == "3" and len(registry(again).versions()) == 3


def test_another_package_of_a_training_that_was_rolled_back_is_held_too(tmp_path: Path) -> None:
    retrain(tmp_path, "before", training__seed=7)
    retrain(tmp_path, "first")
    run_stage("rollback", build({}, "test"), Run(tmp_path / "runs/back"))
    again = challenged(tmp_path, "again", "not worse", package="int8.onnx")
    stage("register", again)
    assert stage("promote", again).manifest.result["reason"].endswith("held by the rollback")
    assert champion(again) == "1" and "rolled_back.run" not in version(again, "3").tags


def test_a_crash_after_the_entry_leaves_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = challenged(tmp_path, "first")
    with monkeypatch.context() as full, pytest.raises(Transient, match="No space left"):
        full.setattr(ArtifactStore, "commit", _full)
        stage("register", run)
    assert len(registry(run).versions()) == 1
    entered = stage("register", run)
    assert entered.manifest.result["version"] == "1" and len(registry(run).versions()) == 1
    assert stage("register", run).path == entered.path
    shutil.rmtree(entered.path)
    assert stage("register", run).manifest.result["version"] == "1" and len(registry(run).versions()) == 1


def _full(*_: object) -> None:
    raise OSError("No space left on device")


def test_the_same_training_against_another_champion_has_new_tags_and_the_champion_keeps_its_own(tmp_path: Path) -> None:
    held = retrain(tmp_path, "held", "undecided", training__seed=7)
    assert version(held, "1").tags["challenge"] == "undecided"
    first = retrain(tmp_path, "first")
    again = challenged(tmp_path, "again", "not worse", training__seed=7)
    assert stage("register", again).manifest.result["version"] == "1" and len(registry(again).versions()) == 2
    tags = version(again, "1").tags
    assert (tags["challenge"], tags["challenge.champion"], tags["run"]) == ("not worse", "2", "again")
    stage("register", challenged(tmp_path, "itself", "not worse"))
    assert version(first, "2").tags["run"] == "first"


def test_an_emptied_mlflow_is_told_again(tmp_path: Path, empty_database: Path) -> None:
    run = challenged(tmp_path, "first")
    before = stage("register", run)
    shutil.copy(empty_database, tmp_path / "mlflow/mlflow.db")
    after = stage("register", run)
    assert after.path != before.path and version(run, "1").run == after.manifest.result["mlflow_run"]


def test_two_at_once_do_not_enter_one_training_twice(tmp_path: Path) -> None:
    run = challenged(tmp_path, "first")
    with locked(run.store.root / "track"), pytest.raises(Transient, match="is in use by process"):
        stage("register", run)
    assert registry(run).versions() == []


def test_a_refused_model_is_not_entered(tmp_path: Path) -> None:
    run: Run = challenged(tmp_path, "worse", "worse")
    with pytest.raises(Exception, match="challenge failed in the run worse"):
        stage("register", run)
    assert registry(run).versions() == []
