from __future__ import annotations

import gzip
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from include.artifacts import Manifest, artifact_key
from include.experiment import Experiment
from include.named_experiments import build, changed
from include.runs import Run
from include.stages import STAGES, BadInput, Transient
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import load_trained
from tasks.encoder.models import predict_logits
from tasks.inference.chosen_model import Model
from tasks.inference.parts import write_parts
from tasks.inference.trained_model import TrainedModel
from tasks.runner import run_stage
from tasks.stages.pipeline.teach.logits import masks
from tasks.stages.pipeline.teach.unlabeled import rows_of
from tests.tasks.encoder.samples import edit_config, reviews, tiny_encoder, write_split
from tests.tasks.stages.pipeline.pretrain.samples import tiny_encoder as encoder_with_mask

Distill = Callable[..., Experiment]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the run "large" has trained a model that knows nearly all answers."""
    home = tmp_path_factory.mktemp("home")
    tiny_encoder(home / "encoder")
    experiment = _experiment(home, epochs=6)
    _preprocessed(home, "large", experiment, train=300)
    for stage in ("pretrain", "train"):
        run_stage(stage, experiment, Run(home / "runs" / "large"))
    return home


def _experiment(home: Path, teacher: str = "", options: dict[str, Any] | None = None, **training: Any) -> Experiment:
    values = {
        "data": {"task": "SST-2", "source": "glue", "path": "x"},
        "model": {"name": str(home / "encoder"), "teacher": teacher},
        "preprocessing": {"max_length": 32},
        "distillation": options or {},
        "training": {"batch_size": 8, "ranks": 1, "precision": "fp32", "learning_rate": 5e-3, **training},
    }
    return build(values, "the test's experiment")


def _preprocessed(home: Path, name: str, experiment: Experiment, train: int = 60) -> Run:
    run, made = Run(home / "runs" / name), STAGES["preprocess"]
    part = made.part(experiment)
    key = artifact_key(made.version, part, {}, str(train))
    if run.store.find("preprocess", key) is None:
        with run.store.writing("preprocess", key) as folder:
            write_split(folder / "train", *reviews(train, seed=1))
            write_split(folder / "dev", *reviews(30, seed=2), parts=1)
            run.store.commit(folder, Manifest("preprocess", key, made.version, part, {}, "", "test"))
    artifact = run.store.find("preprocess", key)
    assert artifact
    run.add(artifact, experiment)
    return run


@pytest.fixture
def text(home: Path) -> Path:
    """Lines of which the long ones have several sentences."""
    lines = [" ".join(f"{text} ." for (text,) in reviews(12, seed)[0]) for seed in range(5, 35)]
    file = home / "text.txt.gz"
    file.write_bytes(gzip.compress("\n".join([*lines, "good word1"]).encode()))
    return file


def test_without_a_teacher_there_is_nothing_to_do(home: Path) -> None:
    run = _preprocessed(home, "alone", _experiment(home))
    made = run_stage("teach", _experiment(home), run)
    assert made.manifest.result["teacher"] == "" and [file.name for file in made.path.iterdir()] == ["manifest.json"]
    assert STAGES["train"].inputs_of(_experiment(home)) == ("preprocess", "pretrain")


def test_the_logits_are_the_teachers(home: Path, text: Path) -> None:
    experiment = _experiment(home, "large", {"text": str(text)})
    made = run_stage("teach", experiment, _preprocessed(home, "small", experiment))
    rows = sum(1 for _ in rows_of(text, 100))
    assert 1 + 30 * 6 < rows <= 1 + 30 * 12
    assert made.manifest.result["rows"] == {"train": 60, "dev": 30, "unlabeled": rows}
    teacher = load_trained(Run(home / "runs/large").artifact("train").path / "model")
    data = Run(home / "runs/small").artifact("preprocess").path
    for split, folder in {"train": data, "dev": data, "unlabeled": made.path}.items():
        table = TokenTable.open(folder / split)
        found = pq.read_table(made.path / f"{split}.parquet")
        assert found["row"].to_pylist() == table.rows.tolist()
        np.testing.assert_allclose(found["logits"].to_pylist(), predict_logits(teacher, table), atol=1e-5)
    assert not TokenTable.open(made.path / "unlabeled").labeled


def test_the_teacher_reads_masked_words_as_its_own_mask(home: Path, tmp_path: Path) -> None:
    plain = _experiment(home)
    augmented = changed(plain, {"preprocessing.augment": ["masking"]}, "the test's experiment")
    folder = encoder_with_mask(tmp_path / "teacher")
    teacher = Model("", "", TrainedModel(str(folder), str(folder)))
    assert (masks(plain, teacher), masks(augmented, teacher)) == (("", ""), ("[UNK]", "[MASK]"))


def test_a_stopped_stage_goes_on_with_the_parts_that_it_lacks(
    home: Path, text: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = _experiment(home, "large", {"text": str(text), "max_rows": 10})
    run = _preprocessed(home, "stopped", experiment)

    def stopped(workers: Any, label: Any, parts: Any, folder: Path) -> None:
        write_parts(workers, label, parts[:2], folder)
        raise Transient("stopped")

    monkeypatch.setattr("tasks.stages.pipeline.teach.logits.write_parts", stopped)
    with pytest.raises(Transient, match="stopped"):
        run_stage("teach", experiment, run)
    monkeypatch.undo()
    with caplog.at_level(logging.INFO):
        made = run_stage("teach", experiment, run)
    assert "computes 2 of 4 parts" in caplog.text and "are divided" not in caplog.text
    assert made.manifest.result["rows"] == {"train": 60, "dev": 30, "unlabeled": 10}
    assert list((home / "checkpoints" / "teach").iterdir()) == []


def test_train_learns_from_the_teacher_and_from_rows_without_labels(home: Path, text: Path) -> None:
    experiment = _experiment(home, "large", {"text": str(text)}, epochs=6)
    run = _preprocessed(home, "distilled", experiment, train=16)
    for stage in ("pretrain", "teach", "train"):
        made = run_stage(stage, experiment, run)
    rows = sum(run.artifact("teach").manifest.result["rows"][name] for name in ("train", "unlabeled"))
    assert made.manifest.result["planned_steps"] == 6 * -(-rows // 8)
    assert made.manifest.inputs.keys() == {"preprocess", "pretrain", "teach"}
    few = _experiment(home, epochs=6)
    alone = _preprocessed(home, "few", few, train=16)
    for stage in ("pretrain", "train"):
        other = run_stage(stage, few, alone)
    assert made.manifest.result["best"] > other.manifest.result["best"] + 0.1


@pytest.mark.parametrize(("teacher", "message"), [
    ("nowhere", "model.teacher is nowhere, but there is no run .*nowhere: name one that is there, champion"),
    ("same", "model.teacher is same, the run itself: name another run"),
    ("./nowhere", "nowhere is not the folder of a model or of a package.*correct model.teacher"),
])  # fmt: skip
def test_a_teacher_that_is_not_there_is_refused(home: Path, tmp_path: Path, teacher: str, message: str) -> None:
    experiment = _experiment(home, teacher)
    shutil.copytree(home / "artifacts", tmp_path / "artifacts")
    with pytest.raises(BadInput, match=message):
        run_stage("teach", experiment, _preprocessed(tmp_path, "same", experiment))


def test_a_teacher_of_another_task_is_refused(home: Path, tmp_path: Path) -> None:
    model = Run(home / "runs/large").artifact("train").path / "model"
    other = shutil.copytree(model, tmp_path / "other")
    edit_config(other, id2label={"0": "sad", "1": "glad"}, label2id={"sad": 0, "glad": 1})
    experiment = _experiment(home, f"{tmp_path}/other")
    with pytest.raises(BadInput, match=r"2 classes \(sad, glad\), but SST-2 is .* \(negative, positive\).*data.labels"):
        run_stage("teach", experiment, _preprocessed(home, "other", experiment))


@pytest.mark.long  # a faster test of predict covers how executors get a model and files
@pytest.mark.usefixtures("with_store")
def test_executors_compute_the_same_logits(home: Path, text: Path) -> None:
    made = {}
    for engine in ("spark", "process"):
        values = _experiment(home, "large", {"text": str(text)}).model_dump(mode="json", exclude_defaults=True)
        experiment = build({**values, "runtime": {"engine": engine}}, "test")
        run = _preprocessed(home, f"on-{engine}", experiment, train=40)
        made[engine] = run_stage("teach", experiment, run).path
        shutil.move(made[engine], home / engine)
    for split in ("train", "dev", "unlabeled"):
        one, other = (pq.read_table(home / engine / f"{split}.parquet")["logits"].to_pylist() for engine in made)
        np.testing.assert_allclose(one, other, atol=1e-5)
