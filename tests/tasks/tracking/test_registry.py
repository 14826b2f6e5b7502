"""The registry on a real MLflow: what it says before there is anything, and while it cannot be reached."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from include.experiment import Experiment
from include.named_experiments import load
from include.runs import Run
from include.stages import Transient
from tasks.tracking.registry import Registry
from tests.tasks.stages.upkeep.track.runs import made
from tests.tasks.tracking.retrained import MODEL, retrain, stage, version

pytestmark = pytest.mark.usefixtures("database")


def test_a_model_is_called_by_its_dataset_or_its_task(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs/first")
    assert Registry.of(Experiment(), run).model == MODEL
    assert Registry.of(load("movies", ["dataset.name=shop"]), run).model == "spark-bert-shop"


def test_an_empty_registry_has_no_champion_and_no_versions(tmp_path: Path) -> None:
    registry = Registry.of(Experiment(), Run(tmp_path / "runs/first"))
    assert registry.champion() is None and registry.versions() == []
    registry.client.create_registered_model(MODEL)
    assert registry.champion() is None and registry.version("1") is None


def test_a_server_that_is_down_is_given_up_in_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:password@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    started = time.monotonic()
    with pytest.raises(Transient, match=f"http://127.0.0.1:9 does not answer as the registry of {MODEL}") as error:
        stage("champion", made(tmp_path, "first", last="gate"))
    assert time.monotonic() - started < 20 and "password" not in str(error.value)


def test_the_mlflow_run_of_a_version_stays_when_its_folder_has_another_training(tmp_path: Path) -> None:
    first = version(retrain(tmp_path, "first"), "1").run
    (tmp_path / "runs/first/run.json").unlink()
    again = retrain(tmp_path, "first", training__seed=7)
    assert version(again, "2").run != first and version(again, "1").run == first
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow/mlflow.db")
    assert client.get_run(first).info.lifecycle_stage == "active"
    (folder,) = (one.path for one in client.list_artifacts(first) if one.path.startswith("model-"))
    files = [file.path for file in client.list_artifacts(first, folder)]
    assert files == [f"{folder}/{name}" for name in ("MLmodel", "manifest.json", "model", "package.json")]
    stage("track", again)
    assert client.get_run(version(again, "2").run).data.tags["version"] == "2"
    assert client.get_run(first).data.tags["spark-bert.registered"] == MODEL
