"""What all compressors promise, on one rank."""

from __future__ import annotations

import math

import pytest
import torch

from tasks.communication.compression.base import ErrorFeedback
from tests.tasks.communication.compression.samples import (
    ELEMENTS,
    FEEDBACK,
    KINDS,
    SHAPES,
    descend,
    gradient,
    make,
    step,
)


@pytest.mark.parametrize("kind", FEEDBACK)
def test_what_was_sent_and_the_residual_are_the_sum_of_the_gradients(kind: str) -> None:
    compressor = make(kind)
    assert isinstance(compressor, ErrorFeedback)
    sent, wanted = torch.zeros(ELEMENTS, dtype=torch.float64), torch.zeros(ELEMENTS, dtype=torch.float64)
    for number in range(30):
        if number % 10 == 5:
            step(compressor, gradient(number) * math.inf)
            compressor.discard_step()
            continue
        wanted += gradient(number)
        sent += step(compressor, gradient(number))
        torch.testing.assert_close(sent + compressor.residual, wanted, rtol=0, atol=1e-4)
    assert compressor.residual.abs().amax() > 0.01  # it was lossy


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_skipped_step_is_seen_and_leaves_nothing_behind(kind: str, value: float) -> None:
    interrupted, straight = make(kind), make(kind)
    for number in range(3):
        step(interrupted, gradient(number))
        step(straight, gradient(number))
    before = interrupted.state_dict()
    poisoned = gradient(3)
    poisoned[7] = value
    assert not step(interrupted, poisoned).isfinite().all()
    interrupted.discard_step()
    if kind == "fp16":  # judges the next scale by the next sum
        torch.testing.assert_close(step(interrupted, gradient(4)), gradient(4))
        return
    assert all(torch.equal(value, before[key]) for key, value in interrupted.state_dict().items())
    assert torch.equal(step(interrupted, gradient(4)), step(straight, gradient(4)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_goes_on_as_if_nothing_had_been(kind: str) -> None:
    saved, resumed = make(kind), make(kind)
    for number in range(3):
        step(saved, gradient(number))
    state = {key: value.clone() for key, value in saved.state_dict().items()}
    resumed.load_state_dict(state)
    for number in range(3, 6):
        assert torch.equal(step(saved, gradient(number)), step(resumed, gradient(number)))


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_stay_zeros_and_do_no_harm(kind: str) -> None:
    compressor = make(kind)
    for _ in range(2):
        assert torch.equal(step(compressor, torch.zeros(ELEMENTS)), torch.zeros(ELEMENTS))
    sent = sum((step(compressor, gradient(0)) for _ in range(60)), torch.zeros(ELEMENTS))
    assert (sent - 60 * gradient(0)).norm() < 0.35 * 60 * gradient(0).norm()


@pytest.mark.parametrize("kind", FEEDBACK)
@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_the_smallest_and_largest_gradients_pass(kind: str, size: float) -> None:
    small, usual = make(kind), make(kind)
    for number in range(3):
        torch.testing.assert_close(
            step(small, gradient(number) * size) / size, step(usual, gradient(number)), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_may_be_of_any_shape(kind: str) -> None:
    for shapes in ([torch.Size([3])], [torch.Size([5, 1]), torch.Size([2, 2, 2])], [torch.Size([700, 3])]):
        elements = sum(shape.numel() for shape in shapes)
        compressor = make(kind, shapes)
        total = sum((step(compressor, torch.arange(1.0, elements + 1)) for _ in range(50)), torch.zeros(elements))
        assert (total / 50 - torch.arange(1.0, elements + 1)).norm() < 0.3 * torch.arange(1.0, elements + 1).norm()


@pytest.mark.parametrize("kind", KINDS)
def test_least_squares_reach_the_uncompressed_loss(kind: str) -> None:
    compressor = make(kind, SHAPES[:1])
    assert descend(lambda gradient: gradient, steps=1000, rate=0.02) < 1e-6
    assert descend(lambda gradient: step(compressor, gradient), steps=1000, rate=0.02) < 1e-4


def test_without_its_residual_a_sign_does_not_get_there() -> None:
    compressor = make("onebit", SHAPES[:1])

    def sum_without_residual(gradient: torch.Tensor) -> torch.Tensor:
        total = step(compressor, gradient)
        compressor.discard_step()
        return total

    assert descend(sum_without_residual, steps=1000, rate=0.02) > 1e-3
