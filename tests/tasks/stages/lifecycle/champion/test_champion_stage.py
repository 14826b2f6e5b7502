"""The stage champion: what later stages are told of the champion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from include.artifacts import MANIFEST
from include.stages import BadInput
from tests.tasks.stages.upkeep.track.runs import made
from tests.tasks.tracking.retrained import MODEL, champion, registry, retrain, stage

pytestmark = pytest.mark.usefixtures("database")


def test_there_is_none_yet(tmp_path: Path) -> None:
    result = stage("champion", made(tmp_path, "first", last="gate")).manifest.result
    assert {key: result[key] for key in ("model", "version", "train", "evaluate", "folder", "run")} == {
        "model": MODEL, "version": "", "train": "", "evaluate": "", "folder": "", "run": "",
    }  # fmt: skip


def test_the_champion_is_named_with_its_folder(tmp_path: Path) -> None:
    first, second = retrain(tmp_path, "first"), made(tmp_path, "second", last="gate", training__seed=7)
    artifact = stage("champion", second)
    result = artifact.manifest.result
    train, evaluate = (first.artifact(name) for name in ("train", "evaluate"))
    assert (result["version"], result["train"], result["evaluate"]) == ("1", train.manifest.key, evaluate.manifest.key)
    assert (result["folder"], result["run"]) == (str(train.path / "model"), "first")
    written = json.loads((artifact.path / "champion.json").read_text())
    assert written.items() <= result.items() and written["version"] == "1"
    assert stage("champion", second).path == artifact.path


def test_another_champion_is_another_artifact(tmp_path: Path) -> None:
    retrain(tmp_path, "first")
    third = made(tmp_path, "third", last="gate", training__seed=8)
    before = stage("champion", third)
    retrain(tmp_path, "second", training__seed=7)
    after = stage("champion", third)
    assert (before.manifest.result["version"], after.manifest.result["version"]) == ("1", "2")
    assert before.path != after.path


def test_damage_is_noticed_by_a_stage_that_was_done_already(tmp_path: Path) -> None:
    first, second = retrain(tmp_path, "first"), made(tmp_path, "second", last="gate", training__seed=7)
    stage("champion", second)
    file = first.artifact("train").path / "model/config.json"
    file.write_text("{}")
    with pytest.raises(BadInput, match=f"{file} of version 1 of {MODEL} is missing or damaged: restore it"):
        stage("champion", second)


def test_a_package_that_was_made_again_is_noticed(tmp_path: Path) -> None:
    first, second = retrain(tmp_path, "first"), made(tmp_path, "second", last="gate", training__seed=7)
    file = first.artifact("package").path / MANIFEST
    file.write_text(file.read_text() + "\n")
    message = f"{file} of version 1 of {MODEL} is missing or differs .* register and promote it again"
    with pytest.raises(BadInput, match=message):
        stage("champion", second)


def test_a_first_champion_whose_files_are_lost_makes_room(tmp_path: Path) -> None:
    run = retrain(tmp_path, "first")
    (run.artifact("train").path / "model/config.json").unlink()
    with pytest.raises(BadInput, match="if there is no previous champion, delete the alias champion in MLflow"):
        stage("champion", run)
    registry(run).client.delete_registered_model_alias(MODEL, "champion")
    after = retrain(tmp_path, "second", training__seed=7)
    assert after.artifact("challenge").manifest.result["outcome"] == "first" and champion(after) == "2"
