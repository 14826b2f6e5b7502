"""The stage rollback on a real MLflow: one step back a run or a promotion, to files that were checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from include.artifacts import ArtifactStore, locked
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.__main__ import main
from tasks.tracking.champions import Champions
from tests.tasks.tracking.retrained import MODEL, champion, registry, retrain, stage, version

pytestmark = pytest.mark.usefixtures("database")


def back(home: Path, name: str = "back") -> Run:
    return Run(home / "runs" / name)


@pytest.fixture
def third(tmp_path: Path) -> Run:
    """The last of three champions."""
    return [retrain(tmp_path, f"run-{seed}", training__seed=seed) for seed in (1, 2, 3)][-1]


def test_every_run_goes_one_champion_back_until_the_first(
    tmp_path: Path, third: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rollback", "--experiment", "movies", "--run", str(tmp_path / "runs/one")]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["model"], result["version"], result["left"]) == (MODEL, "2", "3") and champion(third) == "2"
    times = "version 2 (torch-fp32) answers 1.00 times as many texts per second as version 3 (torch-fp32)"
    assert result["capacity"] == f"With 32 clients, {times}: 90 and 90 on EPYC, where they were packaged."
    assert version(third, "3").tags["rolled_back"] and "rolled_back" not in version(third, "2").tags
    assert main(["rollback", "--run", str(tmp_path / "runs/one")]) == 0 and champion(third) == "2"
    stage("rollback", back(tmp_path, "two"))
    assert champion(third) == "1"
    with pytest.raises(BadInput, match=f"version 1 of {MODEL} is the first champion: there is no previous version"):
        stage("rollback", back(tmp_path, "three"))
    assert champion(third) == "1" and "rolled_back" not in version(third, "1").tags


def test_the_champion_after_a_rollback_replaces_what_was_rolled_back_to(tmp_path: Path, third: Run) -> None:
    stage("rollback", back(tmp_path))
    assert retrain(tmp_path, "fourth", training__seed=4).artifact("promote").manifest.result["replaces"] == "2"
    stage("rollback", back(tmp_path, "again"))
    assert champion(third) == "2"


@pytest.mark.parametrize("broken", [(Champions, "make_champion"), (ArtifactStore, "commit")])
def test_a_try_that_was_cut_off_goes_back_once(
    tmp_path: Path, third: Run, broken: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as cut, pytest.raises(Transient, match="cut off"):
        cut.setattr(*broken, _cut_off)
        stage("rollback", back(tmp_path))
    assert version(third, "3").tags["rolled_back.run"] == "back"
    result = stage("rollback", back(tmp_path)).manifest.result
    assert (result["version"], result["left"], champion(third)) == ("2", "3", "2")


def test_a_try_that_was_cut_off_does_not_take_a_later_champion_back(
    tmp_path: Path, third: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as cut, pytest.raises(Transient, match="cut off"):
        cut.setattr(ArtifactStore, "commit", _cut_off)
        stage("rollback", back(tmp_path))
    retrain(tmp_path, "fourth", training__seed=4)
    with pytest.raises(BadInput, match=f"version 4 of {MODEL} has become the champion since this rollback started"):
        stage("rollback", back(tmp_path))
    assert champion(third) == "4"


def test_a_run_undoes_its_own_promotion_each_time_that_it_promotes(tmp_path: Path, third: Run) -> None:
    for _ in range(2):
        result = stage("rollback", third).manifest.result
        assert (result["version"], result["left"], champion(third)) == ("2", "3", "2")
        assert version(third, "3").tags["rolled_back"] > version(third, "3").tags["promoted"]
        assert stage("rollback", third).manifest.result == result and champion(third) == "2"  # as another try does
        assert stage("promote", third).manifest.result["promoted"] and champion(third) == "3"


def test_a_run_does_not_undo_the_promotion_of_a_later_one(tmp_path: Path, third: Run) -> None:
    retrain(tmp_path, "fourth", training__seed=4)
    match = f"version 4 of {MODEL} has become the champion since version 3 of {MODEL} was promoted: roll back in a new"
    with pytest.raises(BadInput, match=match):
        stage("rollback", third)
    assert champion(third) == "4" and "rolled_back" not in version(third, "3").tags


def test_a_promotion_that_a_person_has_undone_stays_undone(tmp_path: Path, third: Run) -> None:
    stage("rollback", back(tmp_path))
    result = stage("rollback", third).manifest.result
    assert (result["version"], result["left"], champion(third)) == ("2", "3", "2")
    assert version(third, "3").tags["rolled_back.run"] == "back"


def test_a_run_that_has_promoted_nothing_takes_nobody_elses_champion_back(tmp_path: Path, third: Run) -> None:
    held = retrain(tmp_path, "held", "undecided", training__seed=4)
    with pytest.raises(BadInput, match="the run held has no promotion that can be undone: roll back in a new run"):
        stage("rollback", held)
    assert champion(third) == "3"


def test_the_first_promotion_cannot_be_undone(tmp_path: Path) -> None:
    first = retrain(tmp_path, "first")
    with pytest.raises(BadInput, match=f"version 1 of {MODEL} is the first champion: there is no previous version"):
        stage("rollback", first)
    assert champion(first) == "1"


def _cut_off(*_: object) -> None:
    raise OSError("cut off")


def test_there_is_no_champion_yet(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{MODEL} has no champion to roll back"):
        stage("rollback", back(tmp_path))


def test_damaged_files_are_not_gone_back_to(tmp_path: Path, third: Run) -> None:
    file = Run(tmp_path / "runs/run-2").artifact("train").path / "model/config.json"
    file.write_text("{}")
    with pytest.raises(BadInput, match=f"{file} of version 2 of {MODEL} is missing or damaged"):
        stage("rollback", back(tmp_path))
    assert champion(third) == "3" and "rolled_back" not in version(third, "3").tags


def test_a_version_that_was_deleted_is_not_gone_back_to(tmp_path: Path, third: Run) -> None:
    registry(third).client.delete_model_version(MODEL, "2")
    with pytest.raises(
        BadInput, match=f"version 3 of {MODEL} replaced version 2, which no longer exists in the registry"
    ):
        stage("rollback", back(tmp_path))


def test_two_at_once_do_not_move_one_alias(tmp_path: Path, third: Run) -> None:
    with locked(third.store.root / "promote"), pytest.raises(Transient, match="is in use by process"):
        stage("rollback", back(tmp_path))
    assert champion(third) == "3"
