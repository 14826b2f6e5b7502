"""AdamW: whom it decays, whom it moves how fast, clipping, and the learning rate's way up and down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from include.sections import Training
from tasks.encoder.models import EncoderWithHead
from tasks.engine.compression.base import State
from tasks.engine.layers import levels

BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's and BERT's


@dataclass(frozen=True)
class Setting:
    """How a parameter is moved.

    Attributes:
        rate: as a multiple of the schedule's.
        weight_decay: AdamW's lambda.
    """

    rate: float
    weight_decay: float


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
    """AdamW (Loshchilov and Hutter 2019): fused for most parameters, by rows for those with row-sparse gradients."""

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


class RowAdamW:
    """AdamW that moves only the rows in the gradient: the others keep their moments and do not decay.

    As torch.optim.SparseAdam does, with decoupled decay. Corrections of the moments' bias count all steps.
    """

    def __init__(self, parameter: torch.Tensor, setting: Setting) -> None:
        self.parameter, self._setting = parameter, setting
        self._mean, self._square = torch.zeros_like(parameter), torch.zeros_like(parameter)
        self._steps = 0

    @torch.no_grad()
    def step(self, rate: float, divisor: float) -> None:
        """Move the rows that have a gradient (sparse COO, coalesced), divided by the divisor."""
        if self.parameter.grad is None:
            return
        self._steps += 1
        rows, gradient = self.parameter.grad.indices()[0], self.parameter.grad.values() / divisor
        mean = self._mean[rows].lerp_(gradient, 1 - BETAS[0])
        square = self._square[rows].mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        self._mean[rows], self._square[rows] = mean, square
        rate *= self._setting.rate
        correction = 1 - BETAS[0] ** self._steps, 1 - BETAS[1] ** self._steps
        root = square.div(correction[1]).sqrt_().add_(EPSILON)
        moved = self.parameter[rows].mul_(1 - rate * self._setting.weight_decay)
        self.parameter[rows] = moved.addcdiv_(mean, root, value=-rate / correction[0])

    def state(self) -> State:
        """Both moments and the count of steps."""
        return {"mean": self._mean, "square": self._square, "steps": torch.tensor(self._steps)}

    def load(self, state: State) -> None:
        """Take over what state gave."""
        self._mean, self._square = (state[key].to(self.parameter.device) for key in ("mean", "square"))
        self._steps = int(state["steps"])


def learning_rate(step: int, steps: int, training: Training) -> float:
    """The rate at a step, counted from 1: linearly up to the peak, then linearly down to 0 just after the last."""
    rising = round(training.warmup * steps)
    share = step / rising if step <= rising else (steps - step + 1) / (steps - rising)
    return training.learning_rate * share
