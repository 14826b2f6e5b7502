"""The moving average of the weights, which is scored and kept in place of the last step's weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from tasks.communication.compression.base import State


class Average:
    """a_t = (1 - decay) (w_t + decay w_(t-1) + decay^2 w_(t-2) + ...) / (1 - decay^t), of the trained parameters.

    An average of what training has seen alone, as Kingma and Ba 2015, section 7.2, have it: their correction of the
    bias towards the start is the divisor, so a_1 = w_1. With a decay of 0 there is none, and nothing is kept.
    """

    def __init__(self, model: nn.Module, decay: float, settle: Callable[[], None]) -> None:
        """Of the model's parameters after each step; settle puts there what is still on its way."""
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._parameters = trained if decay else {}
        self._values = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._decay, self._settle, self._steps = decay, settle, 0

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step that was taken."""
        if not self._values:
            return
        self._settle()
        self._steps += 1
        share = (1 - self._decay) / (1 - self._decay**self._steps)
        for name, parameter in self._parameters.items():
            self._values[name].lerp_(parameter, share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """In here the model has the averaged weights. Beforehand, nothing may be on its way any more."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> State:
        """The average by parameter, and how many steps it holds."""
        return {**self._values, "steps": torch.tensor(self._steps)}

    def load(self, state: State) -> None:
        """Take over what state gave."""
        self._steps = int(state["steps"])
        for name, values in self._values.items():
            values.copy_(state[name])

    def _swap(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.data, self._values[name] = self._values[name], parameter.data
