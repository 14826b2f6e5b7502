"""The decision about a step on a device that Python runs ahead of: no number of it is read in Python at every step.

Where Python needs the norm of a gradient to go on, it waits until the device has computed it, and then the device waits
for Python to send it the next operations. Here the finite check and the loss scale are tensors of the device, and the
optimizer's kernels read there whether to skip the step.
"""

from __future__ import annotations

import torch

from tasks.training.precision import GROWTH_STEPS, PATIENCE, LossScale, NonFiniteGuard, Precision, lost

LOOK = 50  # steps after which Python looks whether the loss is lost, at the latest


class DeviceGuard(NonFiniteGuard):
    """Finds out on the device which steps are taken, and accepts all of them: the optimizer skips them there.

    Attributes:
        found_inf: 1 if the gradient of this step is not finite, else 0, a scalar on the device.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.found_inf: torch.Tensor = torch.zeros((), device=device)
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
            raise lost(since)

    def state_dict(self) -> dict[str, int]:
        """Return the counts, which Python waits for."""
        self.skipped, self._in_a_row, _ = (int(count) for count in self._counts.tolist())
        return super().state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Replace the counts."""
        super().load_state_dict(state)
        self._counts = self._counts.new_tensor([self.skipped, self._in_a_row, 0])


class DeviceLossScale(LossScale):
    """The loss scale as a tensor of the device. The optimizer divides the gradients by it, when it clips them."""

    def __init__(self, precision: Precision, guard: DeviceGuard) -> None:
        super().__init__(precision)
        self._guard = guard
        if self._moves:
            self.value = torch.full_like(guard.found_inf, float(self.value))
            self._counted = torch.zeros_like(guard.found_inf)

    @property
    def exchanged(self) -> float:
        """1, since the exchange divides gradients by a number of Python's."""
        return 1.0

    @property
    def remaining(self) -> float | torch.Tensor:
        """The whole factor."""
        return self.value

    def update(self, finite: bool) -> None:
        """Adapt the factor after a step to what the guard has found."""
        if not self._moves:
            return
        found = self._guard.found_inf
        good = (self._counted + 1) * (1 - found)
        grown = (good == GROWTH_STEPS).float()
        self.value = self.value * (1 - found / 2) * (1 + grown)
        self._counted = good * (1 - grown)

    def state_dict(self) -> dict[str, float]:
        """Return the factor, and the number of steps since its last change; Python waits for them."""
        if not self._moves:
            return super().state_dict()
        return {"value": float(self.value), "good": float(self._counted)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Replace the factor."""
        super().load_state_dict(state)
        if self._moves:
            self.value = torch.full_like(self._guard.found_inf, float(self.value))
            self._counted = torch.full_like(self._guard.found_inf, self._good)
