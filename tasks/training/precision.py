"""Number formats of forward and backward, the loss scale, and what happens when a number is none."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Literal

import torch

from include.stages import BadInput

Precision = Literal["fp32", "bf16", "fp16"]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
GROWTH_STEPS = 2000  # torch.amp.GradScaler's
PATIENCE = 10  # steps in a row whose gradient is not finite; fp16's scale has settled long before


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Matrix work in the precision's format; the weights stay fp32."""
    return torch.autocast(device.type, dtype=_DTYPES.get(precision), enabled=precision != "fp32", cache_enabled=True)


class LossScale:
    """What fp16's loss is multiplied by, so that small gradients do not vanish (Micikevicius et al. 2018).

    It halves when a gradient overflows and doubles after GROWTH_STEPS without; for the other formats it stays 1.
    """

    def __init__(self, precision: Precision) -> None:
        self._moves = precision == "fp16"
        self.value = 2.0**16 if self._moves else 1.0
        self._good = 0

    def update(self, finite: bool) -> None:
        """Take note of a step's gradient, which is equal on all ranks."""
        if not self._moves:
            return
        self._good = self._good + 1 if finite else 0
        if not finite:
            self.value /= 2
        elif self._good == GROWTH_STEPS:
            self.value, self._good = self.value * 2, 0

    def state(self) -> dict[str, float]:
        """For a checkpoint."""
        return {"value": self.value, "good": self._good}

    def load(self, state: dict[str, float]) -> None:
        """Take over what state gave."""
        self.value, self._good = state["value"], int(state["good"])


class FiniteWatch:
    """Says which steps can be taken. Every rank sees the same norm, so all skip, and stop, together."""

    def __init__(self) -> None:
        self.skipped = 0
        self._in_a_row = 0

    def accepts(self, norm: float, step: int) -> bool:
        """Whether the gradient of this norm is finite. Raises BadInput after PATIENCE steps in a row without."""
        if math.isfinite(norm):
            self._in_a_row = 0
            return True
        self.skipped += 1
        self._in_a_row += 1
        if self._in_a_row == PATIENCE:
            raise BadInput(
                f"loss or gradient is not finite since step {step - PATIENCE + 1}: lower training.learning_rate, "
                "or write training.precision: fp32"
            )
        return False

    def state(self) -> dict[str, int]:
        """For a checkpoint."""
        return {"skipped": self.skipped, "in_a_row": self._in_a_row}

    def load(self, state: dict[str, int]) -> None:
        """Take over what state gave."""
        self.skipped, self._in_a_row = state["skipped"], state["in_a_row"]
