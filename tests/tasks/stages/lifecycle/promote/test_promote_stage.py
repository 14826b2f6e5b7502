"""The stage promote on a real MLflow: who becomes the champion, who does not, and that it is written down."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from include.artifacts import ArtifactStore, locked, write_json
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.stages.lifecycle.promote.decision import Answers
from tests.tasks.tracking.retrained import MODEL, answer, challenged, champion, registry, retrain, stage, version

pytestmark = pytest.mark.usefixtures("database")


def registered(home: Path, name: str, outcome: str = "", **changes: Any) -> Run:
    run = challenged(home, name, outcome, **changes)
    stage("register", run)
    return run


@pytest.mark.parametrize("damaged", ["train", "package"])
def test_a_model_that_was_changed_since_it_was_registered_is_not_promoted(tmp_path: Path, damaged: str) -> None:
    run = registered(tmp_path, "first")
    file = run.artifact(damaged).path / "model/config.json"
    state = file.stat()
    file.write_text(file.read_text()[::-1])
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(BadInput, match=f"{file} of version 1 of {MODEL} is missing or damaged"):
        stage("promote", run)
    assert champion(run) == ""


TRIED: dict[str, Any] = {"retraining__trial_texts": 100, "retraining__min_agreement": 0.55}


def test_the_first_and_one_that_is_not_worse_are_promoted(tmp_path: Path) -> None:
    first = retrain(tmp_path, "first").artifact("promote").manifest.result
    assert (first["promoted"], first["champion"], first["replaces"]) == (True, "1", "")
    assert first["reason"] == f"version 1 of {MODEL} is the champion and replaces none: approved by the comparison"
    run = retrain(tmp_path, "second", training__seed=7)
    second = run.artifact("promote").manifest.result
    assert (second["promoted"], second["champion"], second["replaces"], second["by"]) == (True, "2", "1", "comparison")
    tags = version(run, "2").tags
    assert (tags["replaces"], tags["promoted.by"], tags["decision"]) == ("1", "comparison", "approved")
    assert tags["promoted"] >= version(run, "1").tags["promoted"] and champion(run) == "2"


@pytest.mark.parametrize("outcome", ["not worse", "undecided"])
def test_a_version_is_the_challenger_from_its_registration_to_the_decision(tmp_path: Path, outcome: str) -> None:
    retrain(tmp_path, "first")
    run = registered(tmp_path, "second", outcome, training__seed=7)
    assert registry(run).aliases() == {"champion": "1", "challenger": "2"}
    stage("promote", run)
    assert registry(run).aliases() == {"champion": "2" if outcome == "not worse" else "1"}


def test_an_undecided_one_is_held(tmp_path: Path) -> None:
    retrain(tmp_path, "first")
    run = retrain(tmp_path, "second", "undecided", training__seed=7, **TRIED)  # there is no trial in this case
    result = run.artifact("promote").manifest.result
    assert (result["promoted"], result["version"], result["champion"], result["decision"]) == (False, "2", "1", "held")
    assert result["reason"] == f"version 2 of {MODEL} is not the champion: held by the comparison"
    assert version(run, "2").tags["decision"] == "held" and champion(run) == "1"


def test_a_person_promotes_one_that_the_comparison_could_not_tell(tmp_path: Path) -> None:
    retrain(tmp_path, "first")
    run = registered(tmp_path, "second", "undecided", training__seed=7, retraining__approval=True)
    write_json(run.folder / "decision.json", answer("approved", by="nobody who was asked"))  # as any stage can
    with pytest.raises(BadInput, match=r"requires a person's decision, and Airflow knows of none: clear the Airflow"):
        stage("promote", run)
    for other in (answer("approved", "1"), answer("approved", model="another")):
        with pytest.raises(BadInput, match=rf"Ada was asked about version . of .*, not version 2 of {MODEL}: clear"):
            stage("promote", run, approve=other)
    assert champion(run) == "1"
    result = stage("promote", run, approve=answer("approved")).manifest.result
    assert (result["promoted"], result["by"], champion(run)) == (True, "Ada", "2")
    assert version(run, "2").tags["promoted.by"] == "Ada"


@pytest.mark.parametrize(
    ("texts", "same", "reason"),
    [
        (100, 55, ""),
        (100, 54, "held by the trial: 54 of 100 texts get the champion's answer, which is less than "
         "retraining.min_agreement = 0.55"),
        (99, 99, "held by the trial: 99 texts were compared, but retraining.trial_texts = 100"),
    ],
)  # fmt: skip
def test_a_trial_can_hold_a_version(tmp_path: Path, texts: int, same: int, reason: str) -> None:
    retrain(tmp_path, "first", **TRIED)  # there is no champion to agree with
    run = registered(tmp_path, "second", training__seed=7, **TRIED)
    write_json(run.folder / "trial.json", {"version": "2", "texts": 100, "same": 100})  # as any stage can
    with pytest.raises(BadInput, match=r"a trial, and Airflow knows of none: clear the Airflow task trial"):
        stage("promote", run)
    with pytest.raises(BadInput, match=r"the trial was of version 1, not 2: clear the Airflow task trial"):
        stage("promote", run, trial={"version": "1", "texts": 100, "same": 100})
    result = stage("promote", run, trial={"version": "2", "texts": texts, "same": same}).manifest.result
    assert (result["promoted"], champion(run)) == ((False, "1") if reason else (True, "2"))
    assert result["reason"].endswith(reason) and registry(run).aliases() == {"champion": champion(run)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({}, "rejected by Ada"), ({"by": "", "timed_out": True}, "rejected, because no one decided in time")],
)
def test_a_rejection_is_written_down(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    retrain(tmp_path, "first")
    run = registered(tmp_path, "second", training__seed=7, retraining__approval=True)
    result = stage("promote", run, approve=answer("rejected", **changes)).manifest.result
    assert not result["promoted"] and result["reason"].endswith(f"is not the champion: {reason}")
    tags = version(run, "2").tags
    assert (tags["decision"], tags["decision.at"]) == ("rejected", "2026-01-31T12:00:00+00:00")
    assert tags["decision.by"] == changes.get("by", "Ada") and "promoted" not in tags and champion(run) == "1"


@pytest.mark.parametrize("text", ["{", '{"approve": {"decision": "maybe", "version": "1", "at": "now"}}', "[]"])
def test_a_decision_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(
        BadInput, match=r'approve\. Without Airflow, write SPARK_BERT_PROMOTION=\'{"approve": {"decision"'
    ):
        Answers.read(text)


def test_a_model_that_was_held_against_another_champion_is_not_promoted(tmp_path: Path) -> None:
    late = registered(tmp_path, "late")
    retrain(tmp_path, "first", training__seed=7)
    with pytest.raises(BadInput, match=f"{MODEL} is now version 2, but this model was compared with none: clear the"):
        stage("promote", late)
    assert champion(late) == "2" and "promoted" not in version(late, "1").tags


def test_a_crash_after_the_promotion_ends_in_the_same_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retrain(tmp_path, "first")
    run = registered(tmp_path, "second", training__seed=7)
    with monkeypatch.context() as full, pytest.raises(Transient, match="No space left"):
        full.setattr(ArtifactStore, "commit", _full)
        stage("promote", run)
    tags = version(run, "2").tags
    assert champion(run) == "2"
    result = stage("promote", run).manifest.result
    assert (result["promoted"], result["replaces"], result["by"]) == (True, "1", "comparison")
    assert version(run, "2").tags == tags and champion(run) == "2"


def _full(*_: object) -> None:
    raise OSError("No space left on device")


def test_a_cleared_task_promotes_again_after_a_rollback(tmp_path: Path) -> None:
    retrain(tmp_path, "first")
    run = retrain(tmp_path, "second", training__seed=7)
    for name in ("back-1", "back-2"):
        stage("rollback", Run(tmp_path / "runs" / name))
        assert champion(run) == "1"
        assert stage("promote", run).manifest.result["promoted"] and champion(run) == "2"
    assert json.loads(run.file.read_text())["stages"]["promote"]["result"]["replaces"] == "1"


def test_another_run_of_the_same_training_does_not_undo_a_rollback(tmp_path: Path) -> None:
    retrain(tmp_path, "first")
    retrain(tmp_path, "second", training__seed=7)
    stage("rollback", Run(tmp_path / "runs/back"))
    run = registered(tmp_path, "third", training__seed=7, retraining__margin=0.01)
    with locked(run.store.root / "promote"), pytest.raises(Transient):
        stage("promote", run)
    result = stage("promote", run).manifest.result  # its retry
    assert (result["promoted"], result["version"], result["decision"], champion(run)) == (False, "2", "held", "1")
    assert result["reason"] == f"version 2 of {MODEL} is not the champion: held by the rollback"
    asked = registered(tmp_path, "fourth", training__seed=7, retraining__approval=True)
    assert stage("promote", asked, approve=answer("approved")).manifest.result["promoted"] and champion(run) == "2"


def test_a_cleared_task_promotes_again_after_the_alias_was_moved_by_hand(tmp_path: Path) -> None:
    retrain(tmp_path, "first")
    run = retrain(tmp_path, "second", training__seed=7)
    registry(run).make_champion(version(run, "1"))
    assert stage("promote", run).manifest.result["promoted"] and champion(run) == "2"


def test_two_at_once_do_not_move_one_alias(tmp_path: Path) -> None:
    run = registered(tmp_path, "first")
    with locked(run.store.root / "promote"), pytest.raises(Transient, match="is in use by process"):
        stage("promote", run)
    assert champion(run) == ""
