"""Half the bytes: the sum in fp16, with a scale that avoids overflow and keeps small elements."""

from __future__ import annotations

import math

import torch

from tasks.communication.compression.base import Compressor
from tasks.communication.state import State

PEAK = 256.0  # the largest number of fp16, 65504, is 255 times as large


class Half(Compressor):
    """Sums in fp16, scaled so that the largest element of the last sum becomes about PEAK divided by the ranks.

    Elements 255 times as large, and their sum, still fit; elements of 2^-30 of the largest still count. If one
    overflows, all ranks receive infinity and skip the step. Without a usable last sum, the sum is in fp32.
    """

    scale = 0.0  # 0: unknown

    def start(self, gradient: torch.Tensor) -> None:
        """Start the all-reduce."""
        wire = gradient.mul_(self.scale).half() if self.scale else gradient
        self._handle = self.link.all_reduce(wire, self.name)

    def finish(self) -> torch.Tensor:
        """Wait for the sum, and derive the scale of the next step from it."""
        total = self.link.wait(self._handle).float()
        if self.scale:
            total /= self.scale
        self.scale = self._fitting(float(total.abs().amax()))
        return total

    def state_dict(self) -> State:
        """Return the scale."""
        return {"scale": torch.tensor(self.scale)}

    def load_state_dict(self, state: State) -> None:
        """Replace the scale."""
        self.scale = float(state["scale"])

    def _fitting(self, largest: float) -> float:
        if largest == 0 or not math.isfinite(largest):
            return 0.0
        digits = math.floor(math.log2(PEAK / largest)) - math.ceil(math.log2(self.link.size))
        return 2.0 ** min(max(digits, -126), 126)  # the powers of two whose inverse is a normal fp32 number
