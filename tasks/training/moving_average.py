"""The exponential moving average of the weights, which is evaluated and kept instead of the last step's weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from tasks.communication.state import State


class MovingAverage:
    """Averages the trained parameters over the steps, with exponentially decreasing weights.

        a_t = (1 - decay) (w_t + decay w_(t-1) + decay^2 w_(t-2) + ...) / (1 - decay^t)

    The divisor corrects the bias towards the first steps (Kingma and Ba 2015, section 7.2), so that a_1 = w_1 and the
    pretrained weights are not part of the average. With a decay of 0 nothing is averaged and nothing is stored.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._parameters = trained if decay else {}
        self._values = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._decay, self._steps = decay, 0

    @property
    def enabled(self) -> bool:
        """Whether there is an average."""
        return bool(self._values)

    @torch.no_grad()
    def update(self) -> None:
        """Include the weights after a step. All pending updates of the weights must have been completed."""
        self._steps += 1
        weight = (1 - self._decay) / (1 - self._decay**self._steps)
        for name, parameter in self._parameters.items():
            self._values[name].lerp_(parameter, weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights within the context. All pending updates must have been completed."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state_dict(self) -> State:
        """Return the average by parameter, and the number of steps in it."""
        return {**self._values, "steps": torch.tensor(self._steps)}

    def load_state_dict(self, state: State) -> None:
        """Replace the average."""
        self._steps = int(state["steps"])
        for name, values in self._values.items():
            values.copy_(state[name])

    def _swap(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.data, self._values[name] = self._values[name], parameter.data
