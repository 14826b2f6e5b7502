from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from include.fields.training import Training
from tasks.kernels import library
from tasks.training.adamw import Setting
from tasks.training.optim import Optimizer, learning_rate

SETTINGS = {"weight": Setting(1.0, 0.1), "bias": Setting(0.5, 0.0), "rows": Setting(2.0, 0.01)}
SHAPES = {"weight": (4, 3), "bias": (4,), "rows": (10, 3)}
RATES = [0.01, 0.1, 0.05, 0.02]
CLIP = 1.0


@pytest.fixture(autouse=True, params=["kernels", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the updates are computed."""
    if request.param == "torch":
        monkeypatch.setattr(library, "library", lambda: None)
    return str(request.param)


def parameters() -> dict[str, nn.Parameter]:
    random = torch.Generator().manual_seed(0)
    return {name: nn.Parameter(torch.randn(shape, generator=random)) for name, shape in SHAPES.items()}


def gradients(step: int, rows: list[int]) -> dict[str, torch.Tensor]:
    """Of a step: norms of about 4, and of the row-sparse parameter only these rows."""
    random = torch.Generator().manual_seed(100 + step)
    found = {name: torch.randn(SHAPES[name], generator=random) for name in ("weight", "bias")}
    values = torch.randn((len(rows), 3), generator=random)
    return {**found, "rows": torch.sparse_coo_tensor(torch.tensor([rows]), values, SHAPES["rows"]).coalesce()}


def give(to: dict[str, nn.Parameter], found: dict[str, torch.Tensor]) -> None:
    for name, gradient in found.items():
        to[name].grad = gradient.clone()


def step(optimizer: Optimizer, own: dict[str, nn.Parameter], number: int, rows: list[int]) -> None:
    give(own, gradients(number, rows))
    optimizer.step(RATES[number], divisor=1.0 + number)
    optimizer.zero_grad()


def rows_of(number: int) -> list[int]:
    return [[0, 3, 9], [3, 4], [0, 1, 2, 3], [9]][number]


def by_rows(own: dict[str, nn.Parameter]) -> Optimizer:
    return Optimizer(own, SETTINGS, sparse=frozenset({"rows"}))


def test_clipping_decay_and_rates_are_those_of_torch() -> None:
    own, reference = parameters(), parameters()
    optimizer = Optimizer(own, SETTINGS, sparse=frozenset())
    groups = [{"params": [p], "weight_decay": SETTINGS[name].weight_decay} for name, p in reference.items()]
    torch_s = torch.optim.AdamW(groups, foreach=False, fused=False)
    for number, rate in enumerate(RATES):
        found = {name: g.to_dense() for name, g in gradients(number, list(range(10))).items()}
        give(own, found)
        give(reference, found)
        norm = float(nn.utils.clip_grad_norm_(reference.values(), CLIP))
        for group, setting in zip(torch_s.param_groups, SETTINGS.values(), strict=True):
            group["lr"] = rate * setting.rate
        torch_s.step()
        optimizer.step(rate, divisor=max(1.0, norm / CLIP))
        for name, parameter in own.items():
            torch.testing.assert_close(parameter, reference[name], rtol=1e-5, atol=1e-6)


def test_rows_equal_the_dense_adamw_when_all_are_touched() -> None:
    own, dense = parameters(), parameters()
    one, other = by_rows(own), Optimizer(dense, SETTINGS, sparse=frozenset())
    for number, rate in enumerate(RATES):
        found = gradients(number, list(range(10)))
        give(own, found)
        give(dense, {name: gradient.to_dense() for name, gradient in found.items()})
        one.step(rate, divisor=2.0)
        other.step(rate, divisor=2.0)
    for name, parameter in own.items():
        torch.testing.assert_close(parameter, dense[name], rtol=1e-5, atol=1e-6)


def test_after_its_state_is_loaded_it_goes_on_to_the_bit() -> None:
    own = parameters()
    optimizer = by_rows(own)
    for number in (0, 1):
        step(optimizer, own, number, rows_of(number))
    kept = {name: tensor.clone() for name, tensor in optimizer.state_dict().items()}
    again = {name: nn.Parameter(parameter.detach().clone()) for name, parameter in own.items()}
    other = by_rows(again)
    other.load_state_dict(kept)
    for number in (2, 3):
        step(optimizer, own, number, rows_of(number))
        step(other, again, number, rows_of(number))
    for one in (optimizer, other):
        one.catch_up()
    assert all(torch.equal(again[name], parameter) for name, parameter in own.items())
    after, others = optimizer.state_dict(), other.state_dict()
    assert after.keys() == others.keys()
    assert all(torch.equal(others[key], value) for key, value in after.items())


def test_a_parameter_without_gradient_stays() -> None:
    own = parameters()
    optimizer, before = by_rows(own), own["bias"].detach().clone()
    found = gradients(0, [0])
    give(own, {"weight": found["weight"]})
    optimizer.step(0.1, divisor=1.0)
    assert torch.equal(own["bias"], before)
    assert "bias.exp_avg" not in optimizer.state_dict()
    by_rows(parameters()).load_state_dict(optimizer.state_dict())


def test_the_rate_rises_to_its_peak_and_falls_to_zero_after_the_last_step() -> None:
    training = Training(learning_rate=0.1, warmup=0.2)
    rates = [learning_rate(step, 10, training) for step in range(1, 12)]
    np.testing.assert_allclose(rates, np.array([4, 8, 8, 7, 6, 5, 4, 3, 2, 1, 0]) / 80)


@pytest.mark.parametrize("warmup", [0.0, 1.0])
def test_schedules_without_one_of_the_sides(warmup: float) -> None:
    training = Training(learning_rate=0.1, warmup=warmup)
    assert learning_rate(1, 1, training) == 0.1
    assert learning_rate(5, 10, training) == pytest.approx(0.05 if warmup else 0.06)


@pytest.mark.parametrize("first", ["rows", "dense"])
def test_rows_and_a_dense_parameter_continue_each_other(first: str) -> None:
    """As where a training goes from a CPU to a single GPU, or the reverse."""
    sparse = {"rows": frozenset({"rows"}), "dense": frozenset[str]()}
    own, reference = parameters(), parameters()
    optimizer, whole = Optimizer(own, SETTINGS, sparse[first]), Optimizer(reference, SETTINGS, frozenset())
    for number, rate in enumerate(RATES):
        if number == 2:
            then = Optimizer(own, SETTINGS, sparse["dense" if first == "rows" else "rows"])
            then.load_state_dict({key: value.clone() for key, value in optimizer.state_dict().items()})
            optimizer = then
        found = gradients(number, rows_of(number))
        dense = {name: gradient.to_dense() for name, gradient in found.items()}
        give(own, found if (first == "rows") == (number < 2) else dense)
        give(reference, dense)
        for one in (optimizer, whole):
            one.step(rate, divisor=1.0)
            one.zero_grad()
    optimizer.catch_up()
    for name, parameter in own.items():
        torch.testing.assert_close(parameter, reference[name], rtol=1e-4, atol=1e-5)
