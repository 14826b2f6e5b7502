"""Number formats of forward and backward passes, the loss scale, and what happens when a gradient is not finite.

A device that Python runs ahead of would wait whenever Python asks it for a norm. There, the finite check and the loss
scale are therefore tensors of the device, where the optimizer's kernels read whether to skip the step.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Literal

import torch

from include.stages import BadInput
from tasks.communication.ranks import sum_over_ranks

#: The capabilities of CPUs, as torch.cpu.get_capabilities names them, that compute matrix products in bf16.
_BF16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # the last two are ARM's
Precision = Literal["fp32", "bf16", "fp16"]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FIRST_SCALE, GROWTH_STEPS = 2.0**16, 2000  # as torch.amp.GradScaler has them
NO_SCALE = {"value": 1.0, "good": 0}  # the state of the loss scale of a format that needs none
PATIENCE = 10  # consecutive steps without a finite gradient; the loss scale of fp16 needs fewer to settle
LOOK = 50  # steps after which Python looks, at the latest, whether the loss is lost on a device that it runs ahead of


def resolve(precision: Literal["auto"] | Precision, device: torch.device) -> Precision:
    """Return the precision that all ranks train in, with `auto` resolved. Every rank calls it once."""
    if precision != "auto":
        return precision
    lacking = [not computes_in_bf16(device), not computes_in_fp16(device)]
    without_bf16, without_fp16 = sum_over_ranks(lacking, name="ranks without bf16, and without fp16")
    if not without_bf16:
        return "bf16"
    return "fp32" if without_fp16 else "fp16"


def computes_in_bf16(device: torch.device) -> bool:
    """Return whether the device has instructions for matrix products in bf16, which it otherwise emulates in fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in _BF16)


def computes_in_fp16(device: torch.device) -> bool:
    """Return whether the device has instructions for matrix products in fp16: GPUs since Volta, such as the T4."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which matrix products use the precision's format; the weights stay in fp32."""
    return torch.autocast(device.type, dtype=_DTYPES.get(precision), enabled=precision != "fp32", cache_enabled=True)


class LossScale:
    """The factor of the loss that keeps small gradients from vanishing in fp16 (Micikevicius et al. 2018)."""

    value: float | torch.Tensor

    def __init__(self, precision: Precision) -> None:
        self._moves = precision == "fp16"
        self.value = FIRST_SCALE if self._moves else 1.0
        self._good: int | torch.Tensor = 0

    @property
    def exchanged(self) -> float:
        """The part of the factor that the exchange, which knows numbers only, divides the gradients by."""
        return 1.0 if isinstance(self.value, torch.Tensor) else self.value

    @property
    def remaining(self) -> float | torch.Tensor:
        """The part of the factor that the optimizer divides the gradients by, when it clips them."""
        return self.value if isinstance(self.value, torch.Tensor) else 1.0

    def update(self, finite: bool) -> None:
        """Adapt the factor after a step; `finite` says whether its gradient, equal on all ranks, was finite."""
        if not self._moves:
            return
        self._good = self._good + 1 if finite else 0
        if not finite:
            self.value /= 2
        elif self._good == GROWTH_STEPS:
            self.value, self._good = self.value * 2, 0

    def state_dict(self) -> dict[str, float]:
        """Return the factor, and the number of steps since its last change; Python waits for a device."""
        return {"value": float(self.value), "good": int(self._good)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Replace the factor, unless this format or that of the checkpoint needs none: GPUs differ in their formats."""
        if self._moves and state != NO_SCALE:
            self.value, self._good = state["value"], int(state["good"])


class DeviceLossScale(LossScale):
    """The loss scale as a tensor of the device."""

    def __init__(self, precision: Precision, guard: DeviceGuard) -> None:
        super().__init__(precision)
        self._guard = guard
        self._move()

    def update(self, finite: bool) -> None:
        """Adapt the factor after a step to what the guard has found."""
        if not self._moves:
            return
        found = self._guard.found_inf
        good = (self._good + 1) * (1 - found)
        grown = (good == GROWTH_STEPS).float()
        self.value = self.value * (1 - found / 2) * (1 + grown)
        self._good = good * (1 - grown)

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Replace the factor."""
        super().load_state_dict(state)
        self._move()

    def _move(self) -> None:
        if self._moves:
            self.value = torch.full_like(self._guard.found_inf, float(self.value))
            self._good = torch.full_like(self._guard.found_inf, float(self._good))


class NonFiniteGuard:
    """Decides which steps are taken. Every rank sees the same norm, so all ranks skip, and fail, together."""

    found_inf: torch.Tensor | None = None  # not 0: the optimizer skips the step; None: it is not asked for such steps

    def __init__(self) -> None:
        self.skipped = 0
        self._in_a_row = 0

    def accepts(self, norm: float | torch.Tensor, step: int) -> bool:
        """Return whether a gradient of this norm can be used. Raises BadInput after PATIENCE unusable ones in a row."""
        if math.isfinite(norm):
            self._in_a_row = 0
            return True
        self.skipped += 1
        self._in_a_row += 1
        if self._in_a_row == PATIENCE:
            raise _lost(step - PATIENCE + 1)
        return False

    def look(self) -> None:
        """Raise BadInput if the loss is lost and `accepts` has not said so yet, which it always has here."""

    def state_dict(self) -> dict[str, int]:
        """Return the counts."""
        return {"skipped": self.skipped, "in_a_row": self._in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Replace the counts."""
        self.skipped, self._in_a_row = state["skipped"], state["in_a_row"]


class DeviceGuard(NonFiniteGuard):
    """Finds out on the device which steps are taken, and accepts all of them: the optimizer skips them there."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.found_inf: torch.Tensor = torch.zeros((), device=device)  # 1 if this step's gradient is not finite
        # the steps that were not taken, those in a row up to now, and the step since which the loss is lost, or 0
        self._counts = torch.zeros(3, device=device)

    def accepts(self, norm: float | torch.Tensor, step: int) -> bool:
        """Return True. Every LOOK steps, raises BadInput after PATIENCE unusable gradients in a row."""
        assert isinstance(norm, torch.Tensor)
        self.found_inf = 1.0 - torch.isfinite(norm).float()
        skipped, in_a_row, lost_since = self._counts
        in_a_row = (in_a_row + 1) * self.found_inf
        lost_since = torch.maximum(lost_since, (in_a_row == PATIENCE) * (step - PATIENCE + 1))
        self._counts = torch.stack([skipped + self.found_inf, in_a_row, lost_since])
        if step % LOOK == 0:
            self.look()
        return True

    def look(self) -> None:
        """Wait for the device, and raise BadInput if there were PATIENCE unusable gradients in a row."""
        if since := int(self._counts[2]):
            raise _lost(since)

    def state_dict(self) -> dict[str, int]:
        """Return the counts, which Python waits for."""
        self.skipped, self._in_a_row, _ = (int(count) for count in self._counts.tolist())
        return super().state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Replace the counts."""
        super().load_state_dict(state)
        self._counts = self._counts.new_tensor([self.skipped, self._in_a_row, 0])


def _lost(step: int) -> BadInput:
    return BadInput(
        f"loss or gradient is not finite since step {step}: lower training.learning_rate, "
        "or write training.precision: fp32"
    )
