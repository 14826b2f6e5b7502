"""AdamW: whom it decays, whom it moves how fast, clipping, and the learning rate's way up and down."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from include.sections import Training
from tasks.communication.compression.base import State
from tasks.encoder.models import EncoderWithHead
from tasks.training.layers import levels
from tasks.training.row_adamw import BETAS, EPSILON, RowAdamW, Setting


def settings(model: EncoderWithHead, training: Training) -> dict[str, Setting]:
    """By name, for every trained parameter.

    The head has head_rate, the encoder's top layer 1, and what lies a level lower layer_decay times as much (Howard
    and Ruder 2018; ELECTRA's fine-tuning). Biases and norms, which are a model's vectors, do not decay; nor does what
    is called a bias, as MPNet's table of relative positions.
    """
    level = {f"encoder.{name}": number for name, number in levels(model.encoder).items()}
    top = max(level.values())
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rate = training.layer_decay ** (top - level[name]) if name in level else training.head_rate
            decays = parameter.ndim > 1 and "bias" not in name
            found[name] = Setting(rate, training.weight_decay if decays else 0.0)
    return found


class Optimizer:
    """AdamW (Loshchilov and Hutter 2019): fused for most parameters, by rows for those with row-sparse gradients.

    Before a row is read it must be caught up: before forward those in the batch, before anything else all.
    """

    def __init__(
        self, parameters: Mapping[str, torch.Tensor], settings: Mapping[str, Setting], sparse: frozenset[str]
    ) -> None:
        """The parameters and their settings by the same names, and the names of the row-sparse ones."""
        self._rows = {name: RowAdamW(parameters[name], settings[name]) for name in sparse}
        self._dense = {name: tensor for name, tensor in parameters.items() if name not in sparse}
        groups: dict[Setting, list[torch.Tensor]] = {}
        for name, tensor in self._dense.items():
            groups.setdefault(settings[name], []).append(tensor)
        self._adamw = torch.optim.AdamW(
            [{"params": group, "weight_decay": s.weight_decay, "rate": s.rate} for s, group in groups.items()],
            betas=BETAS, eps=EPSILON, fused=True,
        )  # fmt: skip

    def step(self, rate: float, divisor: float) -> None:
        """Move every parameter that has a gradient, by its gradient divided by the divisor."""
        for group in self._adamw.param_groups:
            group["lr"] = rate * group["rate"]
        self._adamw.grad_scale = torch.tensor(divisor)  # type: ignore[attr-defined]  # the fused kernel divides by it
        self._adamw.step()
        for rows in self._rows.values():
            rows.step(rate, divisor)

    def skip(self) -> None:
        """Take no step, for the gradient is not finite."""
        for rows in self._rows.values():
            rows.skip()

    def catch_up(self, words: torch.Tensor | None = None) -> None:
        """Give the rows of these words, or all, what AdamW moved them by while no gradient had them."""
        for rows in self._rows.values():
            rows.catch_up(None if words is None else torch.unique(words).to(rows.parameter.device))

    def zero_grad(self) -> None:
        """Drop the gradients."""
        self._adamw.zero_grad()
        for rows in self._rows.values():
            rows.parameter.grad = None

    def state(self) -> State:
        """Moments and counts of steps, as <parameter>.<moment>, for a checkpoint."""
        state = {f"{name}.{key}": value for name, rows in self._rows.items() for key, value in rows.state().items()}
        for name, tensor in self._dense.items():
            state |= {f"{name}.{key}": value for key, value in self._adamw.state[tensor].items()}
        return state

    def load(self, state: State) -> None:
        """Take over what state gave."""
        for name, rows in self._rows.items():
            rows.load({key: state[f"{name}.{key}"] for key in rows.state()})
        for name, tensor in self._dense.items():
            own = {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
            if own:  # a parameter that was never moved has no state
                self._adamw.state[tensor] = {key: value.to(tensor.device) for key, value in own.items()}


def learning_rate(step: int, steps: int, training: Training) -> float:
    """The rate at a step, counted from 1: linearly up to the peak, then linearly down to 0 just after the last."""
    rising = round(training.warmup * steps)
    share = step / rising if step <= rising else (steps - step + 1) / (steps - rising)
    return training.learning_rate * share
