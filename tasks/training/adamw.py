"""AdamW (Loshchilov and Hutter 2019): of dense parameters, and of those with row-sparse gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch

from tasks.communication.state import State
from tasks.kernels.library import call, computes, gradient_table

BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's and BERT's
_FORGOTTEN = 1e-12  # momentum below this share adds nothing in fp32, and would become slow denormal numbers
_ROWS = 4096  # caught up at a time, so that catching up a large vocabulary takes little memory


class Setting(NamedTuple):
    """How a parameter is updated: its rate as a multiple of the schedule's learning rate, and AdamW's lambda."""

    rate: float
    weight_decay: float


class KernelAdamW(torch.optim.AdamW):
    """torch's AdamW, whose step is one pass of a kernel over all parameters: contiguous tensors on a CPU, in fp32.

    Gradients may be in bf16. The kernel also rounds the weights that have copies in bf16.
    """

    def __init__(self, groups: Iterable[dict[str, object]], copies: Mapping[torch.Tensor, torch.Tensor]) -> None:
        super().__init__(groups, betas=BETAS, eps=EPSILON)
        self._copies = copies

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient, divided by grad_scale, unless found_inf is not 0."""
        if getattr(self, "found_inf", None):
            return
        parameters, settings, gradients = [], [], []
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
                    state.update(step=torch.tensor(0.0), **moments)
                copy = self._copies.get(parameter)
                fields = (parameter, state["exp_avg"], state["exp_avg_sq"], state["step"])
                parameters.append((*(one.data_ptr() for one in fields), 0 if copy is None else copy.data_ptr()))
                settings.append((group["lr"], group["weight_decay"]))
                gradients.append(parameter.grad.contiguous())
        call(
            "adamw", None, len(parameters), torch.tensor(parameters, dtype=torch.int64), gradient_table(gradients),
            torch.tensor(settings, dtype=torch.float64), float(self.grad_scale),  # type: ignore[attr-defined]
        )  # fmt: skip


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
        rows, gradient = self.parameter.grad.indices()[0], self.parameter.grad.values().contiguous()
        self.catch_up(rows)
        self._steps += 1
        rate *= self._setting.rate
        if computes(self.parameter):
            call(
                "step_rows", None, len(rows), *self.parameter.shape, rows, gradient, *self._tensors, rate,
                self._setting.weight_decay, divisor, self._steps, _FORGOTTEN,
            )  # fmt: skip
            return
        gradient = gradient / divisor
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
        """Apply the postponed updates of these rows, int64 of any shape, or of all. Ranks may do so at other times."""
        if computes(self.parameter):
            count = len(self.parameter) if rows is None else rows.numel()
            listed = None if rows is None else rows.contiguous()
            call("catch_up_rows", None, count, *self.parameter.shape, listed, *self._tensors)
            return
        # Each operation is rounded as IEEE 754 prescribes, so a row's values do not depend on the rows around it.
        behind = self._postponed[-1] < 1
        chosen = behind.nonzero().squeeze(1) if rows is None else torch.unique(rows[behind[rows]])
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

    @property
    def _tensors(self) -> tuple[torch.Tensor, ...]:
        return self.parameter, self._mean, self._square, self._postponed

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
