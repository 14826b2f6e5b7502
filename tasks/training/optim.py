"""AdamW: which parameters decay, the learning rate of each, clipping, the schedule, and the average of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from include.fields.training import Training
from tasks.communication.exchange import Owned
from tasks.communication.state import State, part_of, prefixed
from tasks.encoder.models import EncoderWithHead
from tasks.training.layers import levels

BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's and BERT's
_FORGOTTEN = 1e-12  # momentum below this share adds nothing in fp32, and would become slow denormal numbers
_ROWS = 4096  # caught up at a time, so that catching up a large vocabulary takes little memory


class Setting(NamedTuple):
    """How a parameter is updated: its rate as a multiple of the schedule's learning rate, and AdamW's lambda."""

    rate: float
    weight_decay: float


class RowAdamW:
    """AdamW (Loshchilov and Hutter 2019) whose steps cost as much as the rows in the gradient.

    Dense AdamW also updates rows whose gradient is zero, by their momentum and their weight decay. This class
    postpones these updates until the row is read, and then applies them in closed form. A row p that was last updated
    at step s, with the moments m and v, becomes by the end of step t

        p_t = D p_s - m sum_j w_j / (sqrt(v) q_j + eps),   s < j <= t,
        w_j = rate_j b1^(j-s) / (1 - b1^j) prod_(i>j) d_i,   q_j = sqrt(b2^(j-s) / (1 - b2^j)),
        D = prod_j d_j,   d_j = 1 - rate_j lambda.

    Every step updates five numbers per row: D, W = sum_j w_j, H = sum_j w_j / q_j and the powers of the betas. The sum
    above is then computed as m / (sqrt(v) / H + eps / W). This is exact where either sqrt(v) q_j or eps is negligible.
    Where both matter, with gradients of 1e-8 to 1e-7, it has an error, because q_j varies: up to 5 % of the postponed
    update of a row that was last updated in the first step, 1.5 % in the 10th, 0.06 % in the 100th and 2e-5 in the
    1,000th.
    """

    def __init__(self, parameter: torch.Tensor, setting: Setting) -> None:
        self.parameter, self._setting = parameter, setting
        self._mean, self._square = torch.zeros_like(parameter), torch.zeros_like(parameter)
        self._steps = 0
        # D, W, H, b1^(t-s) and sqrt(b2)^(t-s) of every row, [5, rows]
        none = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64, device=parameter.device)
        self._none_postponed = none.unsqueeze(1)
        self._postponed = self._none_postponed.repeat(1, len(parameter))

    @torch.no_grad()
    def step(self, rate: float, divisor: float) -> None:
        """Update the rows in the gradient (sparse COO, coalesced) divided by `divisor`, and postpone the other rows."""
        if self.parameter.grad is None:
            return
        rows, gradient = self.parameter.grad.indices()[0], self.parameter.grad.values() / divisor
        self.catch_up(rows)
        self._steps += 1
        rate *= self._setting.rate
        correction = 1 - BETAS[0] ** self._steps, 1 - BETAS[1] ** self._steps
        mean = _rows_of(self._mean, rows).lerp_(gradient, 1 - BETAS[0])
        square = _rows_of(self._square, rows).mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        self._mean[rows], self._square[rows] = mean, square
        root = square.div(correction[1]).sqrt_().add_(EPSILON)
        moved = _rows_of(self.parameter, rows).mul_(1 - rate * self._setting.weight_decay)
        self.parameter[rows] = moved.addcdiv_(mean, root, value=-rate / correction[0])
        self._postpone(rate, *correction)
        self._postponed[:, rows] = self._none_postponed

    @torch.no_grad()
    def catch_up(self, rows: torch.Tensor | None = None) -> None:
        """Apply the postponed updates of these rows, int64 [n], or of all rows. Ranks may do so at different times."""
        # Each operation is rounded as IEEE 754 prescribes, so a row's values do not depend on the rows around it.
        behind = self._postponed[-1] < 1
        chosen = behind.nonzero().squeeze(1) if rows is None else rows[behind[rows]]
        for part in torch.split(chosen, _ROWS):
            decay, plain, harmonic, first, root = self._postponed[:, part].unsqueeze(2)  # [rows, 1] each
            mean, square = _rows_of(self._mean, part), _rows_of(self._square, part)
            divisor = square.sqrt().div_(harmonic.float()).add_((EPSILON / plain).float())
            self.parameter[part] = _rows_of(self.parameter, part).mul_(decay.float()).sub_(mean / divisor)
            self._mean[part], self._square[part] = mean.mul_(first.float()), square.mul_(root.square().float())
            self._postponed[:, part] = self._none_postponed

    def skip(self) -> None:
        """Take no step. Each rank has caught up the rows that it read; here, all catch up those that any rank read."""
        if self.parameter.grad is not None:
            self.catch_up(self.parameter.grad.indices()[0])

    def state_dict(self) -> State:
        """Return both moments, the number of steps, and the numbers of the postponed updates, [rows, 5]."""
        postponed = self._postponed.T.contiguous()
        return {"mean": self._mean, "square": self._square, "steps": torch.tensor(self._steps), "postponed": postponed}

    def load_state_dict(self, state: State) -> None:
        """Replace the state."""
        if "postponed" not in state:  # the state of torch's AdamW
            none = self._none_postponed.repeat(1, len(self.parameter)).T
            moments = {"mean": state["exp_avg"], "square": state["exp_avg_sq"]}
            state = {**moments, "steps": state["step"], "postponed": none}
        device = self.parameter.device
        self._mean, self._square = state["mean"].to(device), state["square"].to(device)
        self._postponed = state["postponed"].to(device).T.contiguous()
        self._steps = int(state["steps"])

    def dense_state(self) -> State:
        """Return the state that torch's AdamW would have, for which all rows are caught up."""
        self.catch_up()
        return {"step": torch.tensor(float(self._steps)), "exp_avg": self._mean, "exp_avg_sq": self._square}

    def _postpone(self, rate: float, first_correction: float, second_correction: float) -> None:
        decay, plain, harmonic, first, root = self._postponed
        kept = 1 - rate * self._setting.weight_decay
        torch.threshold_(first.mul_(BETAS[0]), _FORGOTTEN, 0.0)
        root.mul_(BETAS[1] ** 0.5)
        decay.mul_(kept)
        plain.mul_(kept).add_(first, alpha=rate / first_correction)
        harmonic.mul_(kept).addcdiv_(first, root, value=rate * second_correction**0.5 / first_correction)


def _rows_of(table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return a copy of these rows, which `table[rows]` would take longer to gather."""
    return table.index_select(0, rows)


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
    ) -> None:
        """Optimize parameters, by name: `sparse` have row-sparse gradients, `owned` are updated in pieces (Owned)."""
        self._owned, self._settings = owned or {}, settings
        self._rows = {name: RowAdamW(parameters[name], settings[name]) for name in sparse}
        pieces = {name: one.piece for name, one in self._owned.items()}
        self._dense = {name: pieces.get(name, tensor) for name, tensor in parameters.items() if name not in sparse}
        groups: dict[Setting, list[torch.Tensor]] = {}
        for name, tensor in self._dense.items():
            groups.setdefault(settings[name], []).append(tensor)
        self._adamw = torch.optim.AdamW(
            [{"params": group, "weight_decay": s.weight_decay, "rate": s.rate} for s, group in groups.items()],
            betas=BETAS, eps=EPSILON, fused=True,
        )  # fmt: skip
        for one in self._owned.values():
            mean, square = (moment.view(-1)[one.part] for moment in (one.mean, one.square))
            self._adamw.state[one.piece] = {"step": torch.tensor(0.0), "exp_avg": mean, "exp_avg_sq": square}

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
            rows.catch_up(None if words is None else torch.unique(words).to(rows.parameter.device))

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
