"""Trainings with a teacher: the loss of every row, and that all else of the engine works as without one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from include.named_experiments import build
from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.launching.launch import launch
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tasks.training.loss import Criterion, distillation
from tasks.training.objectives import Distilling, build_objective
from tasks.training.training_state import identity
from tests.tasks.encoder.samples import label_sets, reviews, stories, tiny_encoder, tokenizer, write_split
from tests.tasks.launching.jobs import check_stop, losses, make_job

RANDOM = np.random.default_rng(0)


def teach(job: Job, sentences: Any, labels: Any, outputs: int) -> Job:
    """The job with a teacher of random logits, and with these sentences as rows without labels."""
    folder = job.output.parent / "teach"
    write_split(folder / "unlabeled", sentences, labels)
    for part in (folder / "unlabeled").iterdir():
        table = pa.ipc.open_file(part).read_all()
        columns = {name: table[name] for name in table.column_names}
        columns["row"] = pa.array(-1 - table["row"].to_numpy())
        columns["label"] = pa.nulls(len(table), table["label"].type)
        with pa.ipc.new_file(part, table.schema) as file:
            file.write_table(pa.table(columns, table.schema))
    for split, rows in (("train", job.data / "train"), ("unlabeled", folder / "unlabeled")):
        logits = RANDOM.normal(size=(len(TokenTable.open(rows).documents), outputs)).astype(np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), outputs)
        pq.write_table(pa.table({"logits": column}), folder / f"{split}.parquet")
    return dataclasses.replace(job, teacher=folder)


def changed(job: Job, **sections: dict[str, Any]) -> Job:
    values = job.experiment.model_dump(mode="json", exclude_defaults=True)
    for name, fields in sections.items():
        values[name] = values.get(name, {}) | fields
    return dataclasses.replace(job, experiment=build(values, "the test's experiment"))


def taught(root: Path, sections: dict[str, dict[str, Any]] | None = None, **training: Any) -> Job:
    """A training on 60 rows with labels and 20 without."""
    job = teach(make_job(root, **training), *reviews(20, seed=3), outputs=2)
    return changed(job, **{"model": {"teacher": "large"}, **(sections or {})})


@pytest.mark.parametrize("loss", [{}, {"kind": "focal", "class_weights": "balanced"}])
def test_the_losses_of_rows_with_and_without_labels(tmp_path: Path, loss: dict[str, Any]) -> None:
    job = taught(tmp_path, {"loss": loss, "distillation": {"temperature": 3, "weight": 0.25}})
    objective = build_objective(job)
    assert isinstance(objective, Distilling)
    indices = np.array([0, 5, 59, 60, 79])
    batch = objective.batch(indices, step=1)
    assert batch.teaching is not None
    expected = pq.read_table(tmp_path / "teach/train.parquet")["logits"].to_pylist()[5]
    assert batch.teaching.logits[1].tolist() == expected
    with torch.no_grad():
        logits, found = (
            objective.model(batch.input_ids, batch.attention_mask, batch.token_type_ids),
            objective.losses(batch),
        )
    table = TokenTable.open(tmp_path / "data/train")
    criterion = Criterion(job.experiment.loss, job.experiment.task, table.labels)
    soft = distillation("classification", logits, batch.teaching.logits, 3)
    hard = criterion.losses(logits[:3], torch.from_numpy(table.labels[indices[:3]]))
    torch.testing.assert_close(found[:3], 0.25 * soft[:3] + 0.75 * hard)
    torch.testing.assert_close(found[3:], soft[3:])
    weights = criterion.weights(table.labels[indices[:3]])
    np.testing.assert_allclose(objective.terms[indices], [*(0.25 + 0.75 * weights), 1, 1])


def test_micro_batches_and_packed_rows_give_the_same_losses(tmp_path: Path) -> None:
    plain = taught(tmp_path)
    accumulated = changed(plain, training={"accumulation": 3}, batching={"padding_free": True})
    found = []
    for number, job in enumerate((plain, accumulated)):
        own = dataclasses.replace(job, output=tmp_path / f"own-{number}")
        own.output.mkdir()
        build_trainer(own, lambda: False).run()
        found.append(losses(own.output))
    assert len(found[0]) == 2 * 10
    np.testing.assert_allclose(found[1], found[0], rtol=2e-4)


def test_a_stopped_training_goes_on_to_the_bit_and_only_with_the_same_logits(tmp_path: Path) -> None:
    whole = taught(tmp_path)
    stopped = dataclasses.replace(whole, output=tmp_path / "stopped")
    stopped.output.mkdir()
    check_stop(whole, stopped)
    before, file = identity(whole), tmp_path / "teach/unlabeled.parquet"
    pq.write_table(pq.read_table(file).take(list(reversed(range(20)))), file)
    assert identity(whole) != before
    assert identity(changed(whole, distillation={"weight": 0.9}))["config"] != before["config"]


@pytest.mark.long  # the weights of the ranks' losses are those of every training
def test_two_ranks_equal_one(tmp_path: Path) -> None:
    one = taught(tmp_path)
    two = dataclasses.replace(changed(one, training={"ranks": 2}), output=tmp_path / "two")
    two.output.mkdir()
    for job in (one, two):
        launch(job)
    np.testing.assert_allclose(losses(two.output), losses(one.output), rtol=2e-4)


@pytest.mark.parametrize("kind", ["multi-label", "regression"])
def test_other_tasks_learn_from_teachers_as_well(tmp_path: Path, kind: str) -> None:
    sentences, labels = label_sets(40)
    tiny_encoder(tmp_path / "encoder")
    values: Any = labels if kind == "multi-label" else [float(sum(row)) for row in labels]
    for split in ("train", "dev"):
        write_split(tmp_path / "data" / split, sentences, values)
    about = {"labels": ["a", "b", "c"]} if kind == "multi-label" else {"score_range": [0, 3]}
    data = {"task": kind, "source": "files", "path": "x", **about}
    job = changed(make_job(tmp_path), data=data, model={"teacher": "large"})
    job = teach(job, sentences[:16], values[:16], outputs=3 if kind == "multi-label" else 1)
    build_trainer(job, lambda: False).run()
    assert len(losses(job.output)) == 2 * 7 and losses(job.output)[-1] < losses(job.output)[0]


def test_the_windows_of_a_text_have_its_logits(tmp_path: Path) -> None:
    words = tokenizer()
    words.enable_truncation(16, stride=4)
    tiny_encoder(tmp_path / "encoder")
    for split in ("train", "dev"):
        write_split(tmp_path / "data" / split, *stories(20), words=words, stride=4)
    long: dict[str, dict[str, Any]] = {
        "preprocessing": {"max_length": 16, "long": "windows", "stride": 4},
        "model": {"teacher": "large"},
    }
    job = teach(changed(make_job(tmp_path), **long), *reviews(8), outputs=2)
    objective = build_objective(job)
    assert isinstance(objective, Distilling)
    table = TokenTable.open(tmp_path / "data/train")
    assert len(table) > len(table.documents)
    expected = np.array(pq.read_table(tmp_path / "teach/train.parquet")["logits"].to_pylist(), np.float32)
    np.testing.assert_array_equal(objective.logits[: len(table)], expected[table.rows])


def test_logits_of_other_rows_are_refused(tmp_path: Path) -> None:
    job = taught(tmp_path)
    file = tmp_path / "teach/train.parquet"
    pq.write_table(pq.read_table(file).slice(1), file)
    with pytest.raises(BadInput, match=r"has logits of other rows than .*run the stage teach again"):
        build_objective(job)
