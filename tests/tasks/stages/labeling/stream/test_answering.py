"""Which model labels the next batch: the champion, as soon as there is a new one that is sound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.encoder.spec import HeadSpec
from tasks.inference.trained_model import TrainedModel
from tasks.stages.labeling.stream import labeler
from tasks.stages.labeling.stream.labeler import Answering
from tests.tasks.stages.labeling.score.models import CLASSES
from tests.tasks.tracking.retrained import MODEL, retrain


@pytest.fixture(autouse=True)
def heads(monkeypatch: pytest.MonkeyPatch) -> dict[str, HeadSpec]:
    """The head of all models, because those of the registry have none."""
    found = {"head": replace(CLASSES, texts=1)}
    monkeypatch.setattr(TrainedModel, "head", lambda _: found["head"])
    return found


@pytest.mark.usefixtures("database")
def test_a_new_champion_for_pairs_does_not_label_single_texts(tmp_path: Path, heads: dict[str, HeadSpec]) -> None:
    retrain(tmp_path, "first")
    answering = Answering(build({}, "test"), Run(tmp_path / "runs/stream"))
    heads["head"] = replace(CLASSES, texts=2)
    retrain(tmp_path, "second", training__seed=7)
    assert answering.model().version == f"{MODEL}/1"


@pytest.mark.usefixtures("database")
def test_the_next_batch_has_the_new_champion_unless_it_is_damaged(tmp_path: Path) -> None:
    experiment, run = build({}, "test"), Run(tmp_path / "runs/stream")
    with pytest.raises(BadInput, match=f"{MODEL} has no champion"):
        Answering(experiment, run)
    retrain(tmp_path, "first")
    answering = Answering(experiment, run)
    assert answering.model().version == f"{MODEL}/1"
    retrain(tmp_path, "second", training__seed=7)
    assert answering.model().version == f"{MODEL}/2"
    third = retrain(tmp_path, "third", training__seed=8)
    for stage in ("package", "train"):
        (third.artifact(stage).path / "model/config.json").write_text("{}")
    assert answering.model().version == f"{MODEL}/2"


@pytest.mark.usefixtures("database")
def test_without_the_registry_the_model_goes_on(tmp_path: Path) -> None:
    retrain(tmp_path, "first")
    answering = Answering(build({}, "test"), Run(tmp_path / "runs/stream"))
    (tmp_path / "mlflow/mlflow.db").write_bytes(b"no database")
    assert answering.model().version == f"{MODEL}/1"


@pytest.mark.usefixtures("database")
def test_a_champion_that_could_not_be_asked_for_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise Transient("MLflow does not answer")

    retrain(tmp_path, "first")
    answering = Answering(build({}, "test"), Run(tmp_path / "runs/stream"))
    retrain(tmp_path, "second", training__seed=7)
    with monkeypatch.context() as patch:
        patch.setattr(labeler, "chosen", silent)
        assert answering.model().version == f"{MODEL}/1"
    assert answering.model().version == f"{MODEL}/2"


def test_the_files_of_a_named_model_must_not_change(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "__pycache__").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    answering = Answering(build({"streaming": {"model": str(model)}}, "test"), Run(tmp_path / "runs/stream"))
    (model / "__pycache__/code.pyc").touch()  # loading has compiled the model's own code
    answering.check()
    (model / "config.json").write_text('{"other": 1}')
    with pytest.raises(BadInput, match=r"model was changed while the stream labels with it, .* a folder of its own"):
        answering.check()
