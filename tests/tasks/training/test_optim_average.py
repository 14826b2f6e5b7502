from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.training.optim import MovingAverage


def trained(decay: float, steps: int) -> tuple[nn.Linear, MovingAverage, list[torch.Tensor]]:
    """A model, its average, and its weights after each step."""
    model = nn.Linear(3, 2)
    average, seen = MovingAverage(model, decay), []
    for step in range(steps):
        move(model, step)
        seen.append(model.weight.detach().clone())
        average.update()
    return model, average, seen


@torch.no_grad()
def move(model: nn.Linear, step: int) -> None:
    model.weight.copy_(torch.randn(2, 3, generator=torch.Generator().manual_seed(step)))


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("steps", [1, 2, 20])
def test_the_average_is_the_weighted_mean_of_the_steps_weights(decay: float, steps: int) -> None:
    model, average, seen = trained(decay, steps)
    shares = decay ** torch.arange(steps - 1, -1, -1.0)
    expected = (torch.stack(seen) * shares.view(-1, 1, 1)).sum(0) / shares.sum()
    with average.applied():
        torch.testing.assert_close(model.weight.detach(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(model.weight, seen[-1])


def test_a_decay_of_0_is_no_average() -> None:
    model, average, seen = trained(0, 3)
    assert not average.enabled
    with average.applied():
        assert torch.equal(model.weight, seen[-1])
    assert average.state_dict().keys() == {"steps"}


def test_weights_that_are_not_trained_are_left_alone() -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    average = MovingAverage(model, 0.9)
    average.update()
    assert average.state_dict().keys() == {"weight", "steps"}


def test_the_weights_come_back_after_an_error() -> None:
    model, average, seen = trained(0.9, 3)
    with pytest.raises(KeyError), average.applied():
        raise KeyError
    assert torch.equal(model.weight, seen[-1])


def test_an_optimizer_goes_on_after_the_average_was_applied() -> None:
    model, average, seen = trained(0.9, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with average.applied():
        pass
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), seen[-1] - 1)


def test_after_its_state_is_loaded_it_goes_on_to_the_bit() -> None:
    model, average, _ = trained(0.9, 3)
    kept = {name: tensor.clone() for name, tensor in average.state_dict().items()}
    other = MovingAverage(model, 0.9)
    other.load_state_dict(kept)
    move(model, 10)
    average.update()
    other.update()
    assert all(torch.equal(other.state_dict()[name], tensor) for name, tensor in average.state_dict().items())
