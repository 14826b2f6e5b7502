"""Number formats of forward and backward, the loss scale, and what happens when a number is none."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Literal

import torch

from include.stages import BadInput

Precision = Literal["fp32", "bf16", "fp16"]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
PATIENCE = 10  # steps in a row whose gradient is not finite; fp16's scale has settled long before


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Matrix work in the precision's format; the weights stay fp32."""
    return torch.autocast(device.type, dtype=_DTYPES.get(precision), enabled=precision != "fp32", cache_enabled=True)


def loss_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """The dynamic loss scale of fp16 (Micikevicius et al. 2018); for the other formats it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


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
