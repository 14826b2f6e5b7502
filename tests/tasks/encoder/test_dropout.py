from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tasks.encoder.dropout import Dropout, Noise, replace_dropout

COUNT = 400_003  # not a multiple of four, because noise is drawn for four elements at a time


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_rate_is_kept_and_so_is_the_mean(dtype: torch.dtype, rate: float) -> None:
    torch.manual_seed(0)
    noise = Noise().draw(torch.Size([COUNT]), rate, dtype).double()
    dropped = float((noise == 0).double().mean())
    assert abs(dropped - rate) < 4 * math.sqrt(rate * (1 - rate) / COUNT)
    (kept,) = set(noise[noise != 0].tolist())
    assert kept == pytest.approx(1 / (1 - rate), rel=max(2**-16, torch.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.3, 0.5])
def test_the_scale_is_right_on_average(dtype: torch.dtype, rate: float) -> None:
    torch.manual_seed(0)
    noise = Noise()
    draws = 1000
    scales = [float(noise.draw(torch.Size([64]), rate, dtype).max()) for _ in range(draws)]
    spacing = torch.finfo(dtype).eps
    assert len(set(scales)) <= (1 if dtype == torch.float32 or rate == 0.5 else 2)
    assert sum(scales) / draws == pytest.approx(1 / (1 - rate), abs=2**-16 + 4 * 0.5 * spacing / math.sqrt(draws))


def test_torchs_generator_decides() -> None:
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(Noise().draw(torch.Size([3, 50]), 0.5, torch.float32))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_one_noise_gives_different_draws() -> None:
    noise = Noise()
    first, second = (noise.draw(torch.Size([100]), 0.5, torch.float32) for _ in range(2))
    assert not torch.equal(first, second)


def test_the_gradient_goes_where_the_values_went() -> None:
    values = torch.ones(1000, requires_grad=True)
    result = Dropout(0.3)(values)
    result.sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad, result.detach())


def test_evaluation_drops_nothing() -> None:
    values = torch.randn(10)
    assert torch.equal(Dropout(0.5).eval()(values), values)
    assert torch.equal(Dropout(0.0)(values), values)


def test_every_dropout_of_a_model_is_replaced_at_its_rate() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.2), nn.ReLU()), nn.Dropout(0.4))
    replace_dropout(model)
    assert [m.p for m in model.modules() if isinstance(m, Dropout)] == [0.2, 0.4]
    assert not any(type(m) is nn.Dropout for m in model.modules())
