from __future__ import annotations

from collections.abc import Iterator

import horovod.torch as hvd
import pytest
import torch
from torch import nn

from tasks.engine.communicate import WIRE_NORM, Bucket, GradientExchange, gather_rows, sum_over_ranks


@pytest.fixture(autouse=True)
def horovod() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.parametrize("loss_scale", [1.0, 2.0**16, 2.0**24])
@pytest.mark.parametrize("norm", [1e-6, 1.0, 1e6])
def test_fp16_on_the_wire_keeps_large_and_small_gradients(norm: float, loss_scale: float) -> None:
    gradient = torch.logspace(-6, 0, 1000)
    gradient *= norm / gradient.norm()
    parameter = nn.Parameter(torch.zeros(1000))
    parameter.grad = gradient * loss_scale
    bucket = Bucket("test", [parameter], torch.float16)
    factor = WIRE_NORM / norm / loss_scale
    bucket.add(parameter, factor)
    bucket.receive(1 / factor)
    torch.testing.assert_close(parameter.grad / loss_scale, gradient, rtol=2**-10, atol=norm * 1e-9)


def test_without_compression_not_a_bit_changes() -> None:
    parameters = [nn.Parameter(torch.zeros(3, 4)), nn.Parameter(torch.zeros(5))]
    gradients = [torch.randn(3, 4), torch.randn(5)]
    bucket = Bucket("test", list(parameters), torch.float32)
    for _ in range(2):  # a bucket is used again
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
            bucket.add(parameter, 1.0)
        bucket.receive(1.0)
        assert all(torch.equal(p.grad, g) for p, g in zip(parameters, gradients, strict=True) if p.grad is not None)


def test_a_parameter_that_backward_did_not_reach_counts_as_zero() -> None:
    used, unused = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    used.grad = torch.ones(2)
    bucket = Bucket("test", [used, unused], torch.float32)
    bucket.add(used, 1.0)
    bucket.receive(1.0)
    assert unused.grad is not None
    assert (used.grad.tolist(), unused.grad.tolist()) == ([1, 1], [0, 0])


def test_the_wire_scale_follows_the_norm_and_falls_after_an_overflow() -> None:
    exchange = GradientExchange(nn.Linear(2, 2), "fp16", torch.amp.GradScaler("cpu", enabled=False))
    scales = []
    for norm in (1.0, 1000.0, 0.0, float("inf")):
        exchange.adapt(norm)
        scales.append(exchange.wire_scale)
    assert scales == [256.0, 0.25, 0.25, 0.25 / 256]


def test_sums_and_rows() -> None:
    assert sum_over_ranks([1.5, 2e300], "sums") == [1.5, 2e300]
    assert gather_rows(torch.zeros(0, 3), "rows").shape == (0, 3)
