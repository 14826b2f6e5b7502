from __future__ import annotations

import math

import pytest
import torch

from tasks.communication.compression.base import Half
from tasks.communication.link import Link
from tests.tasks.communication.compression.samples import CPU, step

SPREAD = torch.logspace(-6, 0, 1000)


def half() -> tuple[Half, Link]:
    link = Link()
    return Half("half", [SPREAD.shape], link, CPU), link


@pytest.mark.parametrize("largest", [1e-30, 1e-6, 1.0, 1e6, 1e30])
def test_large_and_small_gradients_keep_their_digits(largest: float) -> None:
    compressor, _ = half()
    assert torch.equal(step(compressor, SPREAD * largest), SPREAD * largest)  # nothing to judge by yet
    torch.testing.assert_close(step(compressor, SPREAD * largest), SPREAD * largest, rtol=2**-10, atol=0)


def test_the_scale_follows_the_last_sum() -> None:
    compressor, _ = half()
    scales = []
    for largest in (1.0, 200.0, 3e-3, 0.0, 1.0, math.nan):
        step(compressor, SPREAD * largest)
        scales.append(compressor.scale)
    assert scales == [256.0, 1.0, 65536.0, 0.0, 256.0, 0.0]


def test_a_gradient_may_grow_a_lot_and_what_is_too_much_is_seen_once() -> None:
    compressor, _ = half()
    step(compressor, SPREAD)
    torch.testing.assert_close(step(compressor, SPREAD * 255), SPREAD * 255, rtol=2**-10, atol=0)
    step(compressor, SPREAD)
    assert step(compressor, SPREAD * 300).isinf().any()
    assert torch.equal(step(compressor, SPREAD * 300), SPREAD * 300)
