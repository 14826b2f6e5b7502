from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from include.experiment import Training
from include.stages import BadInput
from tasks.engine.loss import row_losses
from tasks.engine.optim import adamw, clip, learning_rate
from tasks.engine.precision import PATIENCE, FiniteWatch, autocast, loss_scaler
from tasks.engine.scoring import Best


def test_losses_by_hand() -> None:
    logits = torch.tensor([[1.0, 3.0], [0.5, 0.5]])
    expected = [-math.log(math.exp(3) / (math.exp(1) + math.exp(3))), math.log(2)]
    torch.testing.assert_close(
        row_losses("classification", logits, torch.tensor([1, 0])), torch.tensor(expected), rtol=1e-6, atol=1e-6
    )
    scores = torch.tensor([[2.0], [5.0]])
    assert row_losses("regression", scores, torch.tensor([1.0, 5.5])).tolist() == [1.0, 0.25]


def test_biases_and_norms_do_not_decay() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    decayed, kept = adamw(model, Training(weight_decay=0.1)).param_groups
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert [id(p) for p in decayed["params"]] == [id(model[0].weight)]
    assert {id(p) for p in kept["params"]} == {id(model[0].bias), id(model[1].weight), id(model[1].bias)}


def test_the_rate_rises_to_its_peak_and_falls_to_zero_after_the_last_step() -> None:
    training = Training(learning_rate=0.1, warmup=0.2)
    rates = [learning_rate(step, 10, training) for step in range(1, 12)]
    np.testing.assert_allclose(rates, np.array([4, 8, 8, 7, 6, 5, 4, 3, 2, 1, 0]) / 80)


@pytest.mark.parametrize("warmup", [0.0, 1.0])
def test_schedules_without_one_of_the_sides(warmup: float) -> None:
    training = Training(learning_rate=0.1, warmup=warmup)
    assert learning_rate(1, 1, training) == 0.1
    assert learning_rate(5, 10, training) == pytest.approx(0.05 if warmup else 0.06)


def test_clipping_says_the_norm_and_leaves_small_gradients_alone() -> None:
    model = nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    assert clip(model, 10.0) == 5.0
    assert model.weight.grad.tolist() == [[3.0, 4.0]]
    assert clip(model, 1.0) == 5.0
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.6, 0.8]]))


def test_matrix_work_is_done_in_the_precision() -> None:
    layer, device = nn.Linear(4, 4), torch.device("cpu")
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        with autocast(precision, device):  # type: ignore[arg-type]
            assert layer(torch.ones(1, 4)).dtype == dtype


def test_fp16_lowers_its_scale_and_skips_a_step_that_overflows() -> None:
    model = nn.Linear(1, 1, bias=False)
    optimizer, scaler = adamw(model, Training()), loss_scaler("fp16", torch.device("cpu"))
    before, scale = model.weight.item(), 65536.0
    scaler.scale(model(torch.full((1, 1), 1e38)).sum()).backward()
    scaler.unscale_(optimizer)
    assert not math.isfinite(clip(model, 1.0))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() < scale
    assert model.weight.item() == before


def test_a_gradient_that_stays_infinite_ends_the_training_with_a_remedy() -> None:
    watch = FiniteWatch()
    assert watch.accepts(1.0, 1)
    assert not watch.accepts(math.inf, 2)
    assert watch.accepts(1.0, 3)
    for step in range(4, 4 + PATIENCE - 1):
        assert not watch.accepts(math.nan, step)
    with pytest.raises(BadInput, match=r"not finite since step 4: lower training.learning_rate"):
        watch.accepts(math.nan, 4 + PATIENCE - 1)


def test_the_best_model_and_the_end_of_patience(tmp_path_factory: pytest.TempPathFactory) -> None:
    best = Best(tmp_path_factory.mktemp("best") / "model", patience=2)
    assert best.better(math.nan, 1)  # something must be kept
    assert not best.defined
    assert best.better(0.5, 2)
    assert not best.better(0.5, 3)
    assert not best.out_of_patience
    assert not best.better(math.nan, 4)
    assert best.out_of_patience
    assert (best.metric, best.step) == (0.5, 2)


def test_no_patience_never_ends(tmp_path_factory: pytest.TempPathFactory) -> None:
    best = Best(tmp_path_factory.mktemp("best") / "model", patience=0)
    for step in range(1, 50):
        best.better(-step, step)
    assert not best.out_of_patience
