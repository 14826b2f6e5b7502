"""The stage prune on homes with real runs, and a real MLflow: what stays, what goes, and when nothing does."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

import pytest

from include.artifacts import Artifact, Manifest, artifact_key, locked, write_json
from include.datasets import Dataset
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput, StageError, Transient
from tasks.__main__ import main
from tasks.runner import run_stage
from tests.tasks.stages.upkeep.track.runs import made
from tests.tasks.tracking.retrained import retrain, stage


def aged(home: Path, days: float = 40) -> None:
    """Let everything in the home be so many days old."""
    for folder in ("runs", "artifacts", "checkpoints"):
        for path in (home / folder).rglob("*"):
            os.utime(path, times=(time.time() - days * 86400,) * 2, follow_symlinks=False)


def prune(home: Path) -> Artifact:
    experiment = Experiment.model_validate({"retention": {"remove": True}})
    return run_stage("prune", experiment, Run(home / "runs/prune"))


def there(home: Path) -> set[str]:
    """The runs and artifacts of the home, but for prune's own."""
    found = [*(home / "runs").iterdir(), *(home / "artifacts").glob("*/*")]
    return {str(path.relative_to(home)) for path in found if path.is_dir() and "prune" not in str(path)}


def artifacts(run: Run) -> set[str]:
    return {entry["path"] for entry in run.record()["stages"].values() if entry["key"]}


def test_old_runs_and_what_only_they_used_go_and_the_rest_stays(tmp_path: Path) -> None:
    old, older = made(tmp_path, "old", training__seed=7), made(tmp_path, "older", last="validate")
    aged(tmp_path)
    young = made(tmp_path, "young")
    alone = artifacts(old) - artifacts(young)
    assert alone and artifacts(older) < artifacts(young)
    result = prune(tmp_path).manifest.result
    assert there(tmp_path) == {"runs/young", *artifacts(young)}
    assert (result["runs"], result["artifacts"], result["removed"]) == (2, len(alone), 2 + len(alone))
    assert result["freed"] == result["bytes"] > 0 and result["warnings"] == []


def test_a_dry_run_is_the_default_and_lists_what_would_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    made(tmp_path, "old")
    aged(tmp_path)
    before = there(tmp_path)
    caplog.set_level(logging.INFO)
    assert main(["prune", "--run", str(tmp_path / "runs/prune")]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert there(tmp_path) == before and result["removed"] == result["freed"] == 0 and result["bytes"] > 0
    listed = json.loads((Path(result["artifact"]) / "prune.json").read_text())["unused"]
    assert {one["path"] for one in listed} == before and not any(one["removed"] for one in listed)
    assert f"unused for 40 days: {tmp_path}/runs/old, 0.0 MB" in caplog.text
    assert "retention.remove=true removes" in caplog.text


def test_what_a_kept_run_names_stays(tmp_path: Path) -> None:
    named, began, arm = (
        made(tmp_path, name, training__seed=seed) for seed, name in enumerate(("named", "began", "arm"))
    )
    write_json(arm.folder / "arm.json", {"study": "SST-2"})
    made(tmp_path, "gone", training__seed=9)
    aged(tmp_path)
    Run(tmp_path / "runs/young").adopt(began, without="export", changes={"submission.runs": ["named"]})
    prune(tmp_path)
    assert there(tmp_path) == {
        *(f"runs/{name}" for name in ("named", "began", "arm", "young")),
        *artifacts(named), *artifacts(began), *artifacts(arm),
    }  # fmt: skip


def test_the_trials_of_a_kept_search_stay(tmp_path: Path) -> None:
    trial, seed = (made(tmp_path, name, training__seed=at) for at, name in enumerate(("trial", "seed")))
    made(tmp_path, "gone", training__seed=9)
    aged(tmp_path)
    young, key = Run(tmp_path / "runs/young"), artifact_key(1, {}, {}, "")
    young.folder.mkdir()
    write_json(young.folder / "search.json", {"trials": [{"run": "trial"}], "comparison": None})
    sides = {"winner": {"runs": ["seed"]}, "default": {"runs": []}}
    with young.store.writing("recommend", key) as folder:
        write_json(folder / "search.json", {"trials": [{"run": "trial"}], "comparison": sides})
        young.add(young.store.commit(folder, Manifest("recommend", key, 1, {}, {}, "", "")), Experiment())
    prune(tmp_path)
    runs = {path for path in there(tmp_path) if path.startswith("runs")}
    assert runs == {"runs/young", "runs/trial", "runs/seed"}
    assert artifacts(trial) | artifacts(seed) <= there(tmp_path)
    (young.folder / "search.json").write_text("{")
    with pytest.raises(BadInput, match=r"runs/young/search\.json is damaged: remove it"):
        prune(tmp_path)


def test_inputs_datasets_and_folders_that_an_experiment_names_stay(tmp_path: Path) -> None:
    def commit(stage: str, inputs: dict[str, str], fingerprint: str = "") -> str:
        run, key = Run(tmp_path / "runs/made"), artifact_key(1, {}, inputs, fingerprint)
        with run.store.writing(stage, key) as folder:
            run.store.commit(folder, Manifest(stage, key, 1, {}, inputs, fingerprint, ""))
        return key

    raw = commit("validate", {})
    model = commit("train", {"preprocess": commit("preprocess", {"validate": raw})})
    version = commit("ingest", {})
    commit("ingest", {}, "of no dataset")
    Dataset(tmp_path, "reviews").accept(version, "")
    young = Run(tmp_path / "runs/young")
    young.folder.mkdir(parents=True)
    named = {"model": {"name": str(tmp_path / "artifacts/train" / model / "model")}}
    write_json(young.file, {"run": "young", "stages": {}, "experiment": named})
    aged(tmp_path)
    os.utime(young.folder)
    prune(tmp_path)
    assert {path for path in there(tmp_path) if not path.startswith("runs")} == {
        f"artifacts/validate/{raw}",
        *(str(path.relative_to(tmp_path)) for path in tmp_path.glob("artifacts/preprocess/*")),
        f"artifacts/train/{model}", f"artifacts/ingest/{version}",
    }  # fmt: skip


@pytest.mark.usefixtures("database")
def test_the_models_in_the_registry_and_their_runs_stay(tmp_path: Path) -> None:
    first, second = retrain(tmp_path, "first"), retrain(tmp_path, "second", training__seed=7)
    stage("track", second)
    made(tmp_path, "gone", training__seed=9)
    aged(tmp_path)
    prune(tmp_path)
    assert {"runs/first", "runs/second"} == {path for path in there(tmp_path) if path.startswith("runs")}
    assert artifacts(first) | artifacts(second) <= there(tmp_path)
    assert stage("champion", made(tmp_path, "later", last="gate")).manifest.result["version"] == "2"


@pytest.mark.usefixtures("database")
def test_without_the_mlflow_that_knows_the_champions_nothing_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = retrain(tmp_path, "first")
    aged(tmp_path)
    before = there(tmp_path)
    (tmp_path / "mlflow/mlflow.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(BadInput, match=r"models of this home were registered, but the MLflow at .* has no versions"):
        prune(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/elsewhere.db")
    stage("track", run)
    aged(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(
        BadInput,
        match=r"the newest tracked run is in the MLflow at sqlite:.*elsewhere\.db, but .* read from http",
    ):
        prune(tmp_path)
    run.file.unlink()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(Transient, match=r"MLflow at http://127\.0\.0\.1:9 does not answer"):
        prune(tmp_path)
    assert before <= there(tmp_path) | {"runs/first"}


def test_a_record_that_cannot_be_read_stops_it(tmp_path: Path) -> None:
    made(tmp_path, "old")
    aged(tmp_path)
    before = there(tmp_path)
    made(tmp_path, "young", training__seed=7).file.write_text('{"run": "you')
    with pytest.raises(BadInput, match=r"young/run\.json is damaged"):
        prune(tmp_path)
    assert before <= there(tmp_path)


def test_what_a_stage_uses_is_young_again(tmp_path: Path) -> None:
    run = made(tmp_path, "old", last="evaluate")
    made(tmp_path, "other", last="validate", validation__max_overlap=0.1)
    aged(tmp_path)
    with pytest.raises(StageError):
        stage("gate", run)  # a made-up evaluation has no predictions
    kept = prune(tmp_path).manifest.result
    assert kept["runs"] == 1 and {"runs/old", *artifacts(run)} <= there(tmp_path)


def test_checkpoints_go_when_they_are_old_and_nobody_is_at_work_on_them(tmp_path: Path) -> None:
    for name in ("0" * 16, "1" * 16):
        (tmp_path / "checkpoints/train" / name).mkdir(parents=True)
        (tmp_path / "checkpoints/train" / name / "step-1").write_text("weights")
    held = tmp_path / "checkpoints/train" / ("1" * 16)
    with locked(held):
        aged(tmp_path)
        prune(tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints/train").iterdir()] == [held.name]


def test_what_a_killed_stage_left_on_another_boot_goes_when_it_is_old(tmp_path: Path) -> None:
    old, young, other = (tmp_path / "artifacts/train" / name for name in (f".{'0' * 16}-x", f".{'1' * 16}-x", ".mine"))
    for folder in (old, young, other):
        folder.mkdir(parents=True)
        (folder / "weights").write_text("half")
    aged(tmp_path)
    os.utime(young)
    result = prune(tmp_path).manifest.result
    assert (result["leftovers"], result["removed"], result["freed"]) == (1, 1, 4)
    assert not old.exists() and young.is_dir() and other.is_dir()


def test_links_are_neither_followed_nor_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / ("0" * 16)).mkdir(parents=True)
    (tmp_path / "home/artifacts/train").mkdir(parents=True)
    (tmp_path / "home/runs").mkdir()
    (tmp_path / "home/artifacts/train" / ("0" * 16)).symlink_to(outside)
    (tmp_path / "home/artifacts/gate").symlink_to(outside)
    (tmp_path / "home/runs/link").symlink_to(outside)
    aged(tmp_path / "home")
    os.utime(outside / ("0" * 16), times=(0, 0))
    assert prune(tmp_path / "home").manifest.result["removed"] == 0
    assert (outside / ("0" * 16)).is_dir() and (tmp_path / "home/runs/link").is_symlink()
