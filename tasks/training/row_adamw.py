"""AdamW for word embeddings with row-sparse gradients: dense AdamW's movements, made when a row is next read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tasks.communication.compression.base import State

BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's and BERT's
_FORGOTTEN = 1e-12  # of momentum: what is left adds nothing in fp32, and would become slow denormal numbers
_ROWS = 4096  # that are caught up at once, so that catching up all of a large vocabulary takes little memory


@dataclass(frozen=True)
class Setting:
    """How a parameter is moved.

    Attributes:
        rate: as a multiple of the schedule's.
        weight_decay: AdamW's lambda.
    """

    rate: float
    weight_decay: float


class RowAdamW:
    """AdamW (Loshchilov and Hutter 2019) whose steps cost what the rows in the gradient cost.

    Dense AdamW also moves rows whose gradient is zero, by their momentum and their decay. A row p that was moved last
    at step s, with the moments m and v, is owed by the end of step t

        p_t = D p_s - m sum_j w_j / (sqrt(v) q_j + eps),   s < j <= t,
        w_j = rate_j b1^(j-s) / (1 - b1^j) prod_(i>j) d_i,   q_j = sqrt(b2^(j-s) / (1 - b2^j)),
        D = prod_j d_j,   d_j = 1 - rate_j lambda.

    Five numbers a row, which every step updates, are enough: D, W = sum_j w_j, H = sum_j w_j / q_j and the powers of
    the betas. The sum is then m / (sqrt(v) / H + eps / W). That is exact where sqrt(v) q_j or eps outweighs the other.
    Where they are alike, with gradients of 1e-8 to 1e-7, it is off, because q_j varies: by up to 5 % of what is owed to
    a row that was moved in a training's first step, 1.5 % in the 10th, 0.06 % in the 100th, 2e-5 in the 1,000th.
    """

    def __init__(self, parameter: torch.Tensor, setting: Setting) -> None:
        self.parameter, self._setting = parameter, setting
        self._mean, self._square = torch.zeros_like(parameter), torch.zeros_like(parameter)
        self._steps = 0
        # D, W, H, b1^(t-s) and sqrt(b2)^(t-s) of every row, [5, rows]
        self._paid = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64, device=parameter.device).unsqueeze(1)
        self._owed = self._paid.repeat(1, len(parameter))

    @torch.no_grad()
    def step(self, rate: float, divisor: float) -> None:
        """Move the rows that have a gradient (sparse COO, coalesced), divided by the divisor; owe the others."""
        if self.parameter.grad is None:
            return
        rows, gradient = self.parameter.grad.indices()[0], self.parameter.grad.values() / divisor
        self.catch_up(rows)
        self._steps += 1
        rate *= self._setting.rate
        correction = 1 - BETAS[0] ** self._steps, 1 - BETAS[1] ** self._steps
        mean = self._mean[rows].lerp_(gradient, 1 - BETAS[0])
        square = self._square[rows].mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        self._mean[rows], self._square[rows] = mean, square
        root = square.div(correction[1]).sqrt_().add_(EPSILON)
        moved = self.parameter[rows].mul_(1 - rate * self._setting.weight_decay)
        self.parameter[rows] = moved.addcdiv_(mean, root, value=-rate / correction[0])
        self._owe(rate, *correction)
        self._owed[:, rows] = self._paid

    @torch.no_grad()
    def catch_up(self, rows: torch.Tensor | None = None) -> None:
        """Move these rows, or all, by what they are owed. When ranks do so does not matter: the result is the same.

        Every operation by itself rounds as IEEE 754 says, so that a row's values do not depend on the rows beside it.
        """
        behind = self._owed[-1] < 1
        chosen = behind.nonzero().squeeze(1) if rows is None else rows[behind[rows]]
        for part in torch.split(chosen, _ROWS):
            decay, plain, harmonic, first, root = self._owed[:, part].unsqueeze(2)  # [rows, 1] each
            mean, square = self._mean[part], self._square[part]
            divisor = square.sqrt().div_(harmonic.float()).add_((EPSILON / plain).float())
            self.parameter[part] = self.parameter[part].mul_(decay.float()).sub_(mean / divisor)
            self._mean[part], self._square[part] = mean.mul_(first.float()), square.mul_(root.square().float())
            self._owed[:, part] = self._paid

    def skip(self) -> None:
        """Take no step. Ranks have caught up the rows that they have read: let all catch up those that any has."""
        if self.parameter.grad is not None:
            self.catch_up(self.parameter.grad.indices()[0])

    def state(self) -> State:
        """Both moments, the count of steps, and what rows are owed, [rows, 5]."""
        owed = self._owed.T.contiguous()
        return {"mean": self._mean, "square": self._square, "steps": torch.tensor(self._steps), "owed": owed}

    def load(self, state: State) -> None:
        """Take over what state gave."""
        self._mean, self._square, owed = (state[key].to(self.parameter.device) for key in ("mean", "square", "owed"))
        self._owed = owed.T.contiguous()
        self._steps = int(state["steps"])

    def _owe(self, rate: float, first_correction: float, second_correction: float) -> None:
        """Add the step to what every row is owed, as if its gradient were zero."""
        decay, plain, harmonic, first, root = self._owed
        kept = 1 - rate * self._setting.weight_decay
        torch.threshold_(first.mul_(BETAS[0]), _FORGOTTEN, 0.0)
        root.mul_(BETAS[1] ** 0.5)
        decay.mul_(kept)
        plain.mul_(kept).add_(first, alpha=rate / first_correction)
        harmonic.mul_(kept).addcdiv_(first, root, value=rate * second_correction**0.5 / first_correction)
