"""Which model labels the next batch: the champion, as soon as there is a new one that is sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from include.named import build
from include.runs import Run
from include.stages import BadInput
from tasks.stages.stream.answering import Answering
from tests.tasks.tracking.retrained import MODEL, retrain


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
