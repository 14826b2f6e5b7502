"""AdamW: which parameters decay, the learning rate of each, clipping, the schedule, and the average of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from include.fields.training import Training
from tasks.communication.exchange import Owned
from tasks.communication.state import State, part_of, prefixed
from tasks.encoder.models import EncoderWithHead
from tasks.kernels.library import computes
from tasks.training.adamw import BETAS, EPSILON, KernelAdamW, RowAdamW, Setting
from tasks.training.layers import levels


def settings(model: EncoderWithHead, training: Training) -> dict[str, Setting]:
    """Return the settings of every trained parameter, by name.

    A layer has `layer_decay` times the rate of the one above it (Howard and Ruder 2018), and the head `head_rate` times
    that of the top layer. Biases, norms, and MPNet's table of relative positions have no weight decay.
    """
    level = {f"{model.encoder_prefix}{name}": number for name, number in levels(model.encoder).items()}
    top = max(level.values())
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rate = training.layer_decay ** (top - level[name]) if name in level else training.head_rate
            decays = parameter.ndim > 1 and "bias" not in name
            found[name] = Setting(rate, training.weight_decay if decays else 0.0)
    return found


class Optimizer:
    """AdamW (Loshchilov and Hutter 2019); rows with sparse gradients must be caught up before they are read."""

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        settings: Mapping[str, Setting],
        sparse: frozenset[str],
        owned: Mapping[str, Owned] | None = None,
        copies: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Optimize parameters, by name: `sparse` have row-sparse gradients, `owned` are updated in pieces (Owned).

        Updated weights are rounded to their `copies` in bf16.
        """
        self._owned, self._settings = owned or {}, settings
        self._rows = {name: RowAdamW(parameters[name], settings[name]) for name in sparse}
        pieces = {name: one.piece for name, one in self._owned.items()}
        self._dense = {name: pieces.get(name, tensor) for name, tensor in parameters.items() if name not in sparse}
        groups: dict[Setting, list[torch.Tensor]] = {}
        for name, tensor in self._dense.items():
            groups.setdefault(settings[name], []).append(tensor)
        listed = [{"params": group, "weight_decay": s.weight_decay, "rate": s.rate} for s, group in groups.items()]
        self._adamw: torch.optim.AdamW
        if computes(*self._dense.values()):
            of_pieces = {self._dense[name]: self._part(name, copy) for name, copy in (copies or {}).items()}
            self._adamw = KernelAdamW(listed, of_pieces)
        else:
            assert not copies, "only the kernel rounds weights to their copies"
            self._adamw = torch.optim.AdamW(listed, betas=BETAS, eps=EPSILON, fused=True)
        for name, one in self._owned.items():
            moments = {"exp_avg": self._part(name, one.mean), "exp_avg_sq": self._part(name, one.square)}
            self._adamw.state[one.piece] = {"step": torch.tensor(0.0), **moments}

    def _part(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        return whole.view(-1)[self._owned[name].part] if name in self._owned else whole

    def step(self, rate: float, divisor: float | torch.Tensor, found_inf: torch.Tensor | None = None) -> None:
        """Update every parameter that has a gradient, which is divided by the divisor, at the schedule's rate."""
        # Where found_inf, a scalar on the device, is not 0, nothing is updated; only without row-sparse gradients.
        for group in self._adamw.param_groups:
            group["lr"] = rate * group["rate"]
        self._adamw.grad_scale = torch.as_tensor(divisor)  # type: ignore[attr-defined]  # the fused kernel divides by it
        self._adamw.found_inf = found_inf  # type: ignore[attr-defined]
        self._adamw.step()
        for rows in self._rows.values():
            rows.step(rate, float(divisor))

    def skip(self) -> None:
        """Take no step, because the gradient is not finite."""
        for rows in self._rows.values():
            rows.skip()

    def catch_up(self, words: torch.Tensor | None = None) -> None:
        """Apply the postponed updates (see RowAdamW) to the rows of these token ids, or to all rows."""
        for rows in self._rows.values():
            rows.catch_up(None if words is None else words.to(rows.parameter.device))

    def zero_grad(self) -> None:
        """Remove the gradients."""
        self._adamw.zero_grad()
        for rows in self._rows.values():
            rows.parameter.grad = None

    def state_dict(self) -> State:
        """Return moments and step counts, as <parameter>.<moment>: of the whole one where a piece is optimized."""
        state: State = {}
        for name, rows in self._rows.items():
            state |= prefixed(name, rows.state_dict())
        for name, tensor in self._dense.items():
            state |= prefixed(name, self._adamw.state[tensor])
        for name, one in self._owned.items():
            state |= {f"{name}.exp_avg": one.mean, f"{name}.exp_avg_sq": one.square}
        return state

    def load_state_dict(self, state: State) -> None:
        """Replace moments and step counts, after the parameters; those of rows also fit dense parameters."""
        for name, rows in self._rows.items():
            rows.load_state_dict(part_of(state, name))
        for name, tensor in self._dense.items():
            own = part_of(state, name)
            if "postponed" in own:
                rows = RowAdamW(tensor, self._settings[name])
                rows.load_state_dict(own)
                own = rows.dense_state()
            if own and name in self._owned:  # the moments stay where the other ranks find them
                self._adamw.state[tensor]["step"].copy_(own["step"])
                self._owned[name].mean.copy_(own["exp_avg"])
                self._owned[name].square.copy_(own["exp_avg_sq"])
            elif own:  # a parameter that was never updated has no state
                self._adamw.state[tensor] = {key: value.to(tensor.device) for key, value in own.items()}


def clipping(norm: float | torch.Tensor, limit: float, scale: float | torch.Tensor) -> float | torch.Tensor:
    """Return the divisor that limits the norm of a gradient, and removes the loss scale, which both still contain."""
    if isinstance(norm, torch.Tensor):
        return torch.clamp(norm / limit, min=scale)
    return max(float(scale), norm / limit)


def learning_rate(step: int, steps: int, training: Training) -> float:
    """Return the learning rate at a step, counted from 1: linear warm-up to the peak, then linear decay to 0."""
    rising = round(training.warmup * steps)
    share = step / rising if step <= rising else (steps - step + 1) / (steps - rising)
    return training.learning_rate * share


class MovingAverage:
    """Averages the trained parameters over the steps, with exponentially decreasing weights.

        a_t = (1 - decay) (w_t + decay w_(t-1) + decay^2 w_(t-2) + ...) / (1 - decay^t)

    The divisor corrects the bias towards the first steps (Kingma and Ba 2015, section 7.2). torch's AveragedModel
    has none, swaps no weights in place, and copies frozen ones. A decay of 0 averages nothing.
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
