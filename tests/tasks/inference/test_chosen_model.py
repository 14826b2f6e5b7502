"""Which model scores: the champion of a real registry, or a folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput
from tasks.inference.chosen_model import Model, chosen, teacher_of
from tasks.inference.trained_model import TrainedModel
from tests.tasks.stages.labeling.score.models import CLASSES
from tests.tasks.tracking.retrained import MODEL, retrain


@pytest.fixture(autouse=True)
def head(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head of all models, because those of the registry have none."""
    monkeypatch.setattr(TrainedModel, "head", lambda _: CLASSES)


def champion(home: Path, **scoring: str) -> Model:
    return chosen(build({"scoring": scoring}, "test"), Run(home / "runs/scoring"), "scoring")


@pytest.mark.usefixtures("database")
def test_it_is_the_champion_unless_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{MODEL} has no champion: promote a model with the Dag retrain"):
        champion(tmp_path)
    first = retrain(tmp_path, "first").artifact("package").path / "model"
    found = champion(tmp_path)
    assert (found.version, found.trained.folder) == (f"{MODEL}/1", str(first))
    retrain(tmp_path, "second", training__seed=7)
    assert champion(tmp_path).version == f"{MODEL}/2" and champion(tmp_path).digest != found.digest
    named = champion(tmp_path, model=str(first))
    assert named.trained.folder == str(first) and named.version.startswith("sha256:")


@pytest.mark.usefixtures("database")
def test_the_champion_is_a_teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, run = build({"model": {"teacher": "champion"}}, "test"), Run(tmp_path / "runs/small")
    with pytest.raises(BadInput, match=f"{MODEL} has no champion: .* or name another model.teacher"):
        teacher_of(experiment, run)
    package = retrain(tmp_path, "first").artifact("package").path
    monkeypatch.setattr(TrainedModel, "head", lambda _: replace(CLASSES, label_names=experiment.task.label_names))
    found = teacher_of(experiment, run)
    assert (found.version, found.trained.folder) == (f"{MODEL}/1", str(package / "model"))
    named = teacher_of(build({"model": {"teacher": "first"}}, "test"), run)
    assert (named.version, named.trained) == ("first", found.trained)


@pytest.mark.usefixtures("database")
def test_a_champion_whose_package_is_gone_is_computed_by_pytorch(tmp_path: Path) -> None:
    run = retrain(tmp_path, "first")
    shutil.rmtree(run.artifact("package").path)
    found = champion(tmp_path).trained
    assert (found.folder, found.form) == (str(run.artifact("train").path / "model"), "torch-fp32")


@pytest.mark.usefixtures("database")
def test_a_champion_with_changed_files_is_refused(tmp_path: Path) -> None:
    run = retrain(tmp_path, "first")
    packaged, trained = (run.artifact(stage).path / "model/config.json" for stage in ("package", "train"))
    packaged.write_text("{}")
    with pytest.raises(BadInput, match=f"{packaged} is missing or damaged: remove .* and run package again"):
        champion(tmp_path)
    trained.write_text("{}")
    with pytest.raises(BadInput, match=f"{trained} of version 1 of {MODEL} is missing or damaged"):
        champion(tmp_path)


def test_every_file_of_a_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = champion(tmp_path, model=str(tmp_path)).version
    (tmp_path / "model.onnx").touch()
    assert champion(tmp_path, model=str(tmp_path)).version != before
    assert champion(tmp_path, model=str(tmp_path / "config.json")) == champion(tmp_path, model=str(tmp_path))
