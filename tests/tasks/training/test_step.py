from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from include.fields.training import Batching, Loss
from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import load_trained
from tasks.encoder.models import predict_logits
from tasks.launching.launch import launch
from tasks.training import precision
from tasks.training.job import Job
from tasks.training.loss import Criterion
from tasks.training.objectives import LOSS, BestModel
from tasks.training.precision import GROWTH_STEPS, PATIENCE, LossScale, NonFiniteGuard, autocast
from tasks.training.sampler import planned_steps
from tests.tasks.launching.jobs import lines, losses, make_job


def train(root: Path, batching: Batching | None = None, loss: Loss | None = None, **training: Any) -> Job:
    """A training that is done."""
    job = make_job(root, **{"patience": 0, **training})
    sections = {"batching": batching or Batching(), "loss": loss or Loss()}
    done = dataclasses.replace(job, experiment=job.experiment.model_copy(update=sections))
    launch(done)
    return done


def summary(job: Job) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((job.output / "training.json").read_text(encoding="utf-8"))
    return values


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steps")


@pytest.mark.long
def test_pieces_on_two_ranks_equal_the_whole_batch_on_one(root: Path) -> None:
    """With class weights, which differ between the pieces, layers that learn unlike, and averaged weights."""
    options: dict[str, Any] = {
        "loss": Loss(class_weights="balanced"), "layer_decay": 0.8, "head_rate": 2, "average_decay": 0.8, "epochs": 1,
    }  # fmt: skip
    whole = train(root, **options)
    pieces = train(root, **options, ranks=2, accumulation=3)
    np.testing.assert_allclose(losses(pieces.output), losses(whole.output), rtol=1e-5)
    dev_losses = [[line[LOSS] for line in lines(job.output) if LOSS in line] for job in (whole, pieces)]
    np.testing.assert_allclose(dev_losses[1], dev_losses[0], rtol=1e-5)


def test_the_average_is_scored_and_does_not_change_the_training(root: Path) -> None:
    plain, averaged = train(root, epochs=1), train(root, epochs=1, average_decay=0.8)
    assert losses(averaged.output) == losses(plain.output)
    (_, *one), (_, *other) = ([line[LOSS] for line in lines(job.output) if LOSS in line] for job in (plain, averaged))
    assert one != other


@pytest.mark.parametrize("average_decay", [0.0, 0.9])
def test_the_best_model_by_loss_is_the_one_kept(root: Path, average_decay: float) -> None:
    job = train(root, best_by="loss", average_decay=average_decay, epochs=4, learning_rate=1e-2, batch_size=4)
    scored = {line["step"]: line for line in lines(job.output) if LOSS in line}
    for line in scored.values():
        assert list(line["shares"]) == ["negative", "positive"] and sum(line["shares"].values()) == pytest.approx(1)
    best = min(scored, key=lambda step: scored[step][LOSS])
    found = summary(job)
    assert (found["best_step"], found["best"]) == (best, scored[best]["accuracy"])
    table = TokenTable.open(job.data / "dev")
    criterion = Criterion(Loss(), job.experiment.task, table.labels)
    kept = criterion.mean(predict_logits(load_trained(job.output / "model"), table), table.labels)
    assert kept == pytest.approx(scored[best][LOSS], rel=1e-5)


def test_the_best_model_by_another_metric_is_the_one_kept(root: Path) -> None:
    job = train(root, best_by="f1", epochs=2, learning_rate=1e-2, batch_size=4)
    scored = {line["step"]: line["f1"] for line in lines(job.output) if LOSS in line}
    found = summary(job)
    assert (found["metric"], found["best"]) == ("f1", max(scored.values()))
    assert scored[found["best_step"]] == found["best"]


def test_patience_with_the_loss(root: Path) -> None:
    job = train(root, best_by="loss", patience=2, learning_rate=1e-12, epochs=20, evaluations=1)
    assert summary(job)["steps"] == 3 * 8


@pytest.mark.parametrize("kind", ["length", "tokens", "tiers", "static"])
def test_every_way_of_batching_learns_from_every_row(root: Path, kind: str) -> None:
    job = train(root, Batching.model_validate({"kind": kind, "batch_tokens": 512}), epochs=2, evaluations=1)
    found, table = summary(job), TokenTable.open(job.data / "train")
    assert found["steps"] == found["planned_steps"] == planned_steps(job)
    padding = 1 - table.lengths.sum() / (len(table) * job.experiment.preprocessing.max_length)
    assert (found["padding_share"] == pytest.approx(padding, abs=1e-4)) == (kind == "static")
    assert all(math.isfinite(loss) for loss in losses(job.output))


def test_frozen_layers_stay_as_they_were(root: Path) -> None:
    job = train(root, freeze_layers=1, epochs=1, evaluations=1)
    before, after = load_file(job.encoder / "model.safetensors"), load_file(job.output / "model" / "model.safetensors")
    trained = {name.removeprefix("encoder."): tensor for name, tensor in after.items()}
    same = {name for name, tensor in before.items() if name in trained and torch.equal(tensor, trained[name])}
    assert same == {name for name in before if name.startswith(("embeddings.", "encoder.layer.0."))}


def test_matrix_work_is_done_in_the_precision() -> None:
    layer, device = nn.Linear(4, 4), torch.device("cpu")
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        with autocast(name, device):  # type: ignore[arg-type]
            assert layer(torch.ones(1, 4)).dtype == dtype


def _precision(monkeypatch: pytest.MonkeyPatch, lacking: int, **capabilities: bool) -> str:
    """What `auto` becomes on a CPU with these capabilities, when so many other ranks do not compute in bf16."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(precision, "sum_over_ranks", lambda values, name: [value + lacking for value in values])
    return precision.resolve("auto", torch.device("cpu"))


def test_auto_is_bf16_if_all_ranks_compute_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _precision(monkeypatch, 0, avx512_f=True, avx512_bf16=False) == "fp32"
    assert _precision(monkeypatch, 0, avx512_bf16=True) == "bf16"
    assert _precision(monkeypatch, 0, amx_bf16=True) == "bf16"
    assert _precision(monkeypatch, 1, amx_bf16=True) == "fp32"
    assert precision.resolve("fp16", torch.device("cpu")) == "fp16"


@pytest.mark.parametrize(
    ("bf16", "capability", "found"), [(True, (8, 0), "bf16"), (False, (7, 5), "fp16"), (False, (6, 1), "fp32")]
)
def test_auto_on_a_gpu_is_what_it_has_matrix_units_for(
    bf16: bool, capability: tuple[int, int], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert precision.resolve("auto", torch.device("cuda")) == found


def test_the_loss_scale_halves_after_an_overflow_and_doubles_after_many_good_steps() -> None:
    scale = LossScale("fp16")
    assert scale.value == 2.0**16
    scale.update(finite=False)
    assert scale.value == 2.0**15
    for _ in range(GROWTH_STEPS - 1):
        scale.update(finite=True)
    again = LossScale("fp16")
    again.load_state_dict(scale.state_dict())
    for one in (scale, again):
        one.update(finite=True)
        assert one.value == 2.0**16


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_the_other_formats_need_no_loss_scale(name: Any) -> None:
    scale = LossScale(name)
    scale.update(finite=False)
    assert scale.value == 1


def test_a_gradient_that_stays_infinite_ends_the_training_with_a_remedy() -> None:
    watch = NonFiniteGuard()
    assert watch.accepts(1.0, 1)
    assert not watch.accepts(math.inf, 2)
    assert watch.accepts(1.0, 3)
    for step in range(4, 4 + PATIENCE - 1):
        assert not watch.accepts(math.nan, step)
    with pytest.raises(BadInput, match=r"not finite since step 4: lower training.learning_rate"):
        watch.accepts(math.nan, 4 + PATIENCE - 1)


def test_the_best_model_and_the_end_of_patience(tmp_path: Path) -> None:
    best = BestModel(tmp_path / "model", patience=2)
    assert best.improves(math.nan, math.nan, 1)  # something must be kept
    assert not best.defined
    assert best.improves(-0.5, 0.8, 2)
    assert not best.improves(-0.5, 0.9, 3)
    assert not best.out_of_patience
    assert not best.improves(math.nan, 0.9, 4)
    assert best.out_of_patience
    assert (best.selection, best.metric, best.step) == (-0.5, 0.8, 2)


def test_no_patience_never_ends(tmp_path: Path) -> None:
    best = BestModel(tmp_path / "model", patience=0)
    for step in range(1, 50):
        best.improves(-step, -step, step)
    assert not best.out_of_patience
