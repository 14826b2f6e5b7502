"""Half the bytes: the sum in fp16, at a scale at which it neither overflows nor loses the small elements."""

from __future__ import annotations

import math

import torch

from tasks.communication.compression.base import Compressor
from tasks.communication.link import Handle
from tasks.communication.state import State

PEAK = 256.0  # fp16 ends at 65504, 255 times as much


class Half(Compressor):
    """Sums in fp16, scaled by a power of two, so that scaling itself rounds nothing.

    The scale brings the last sum's largest element, which all ranks know, to PEAK divided by the number of ranks. So
    elements 255 times as large pass, and so does their sum, and what is 2^-30 of the largest still counts with a few
    ranks. Should an element overflow, all ranks receive the infinity and skip the step. The sum travels in fp32 when
    there is no last one to judge by: in the first step, and after one of zeros or of what is no number.
    """

    scale = 0.0  # 0: not known
    _handle: Handle = -1

    def start(self, gradient: torch.Tensor) -> None:
        """Send it."""
        wire = gradient.mul_(self.scale).half() if self.scale else gradient
        self._handle = self.link.all_reduce(wire, self.name)

    def finish(self) -> torch.Tensor:
        """The sum; the next step's scale follows from it."""
        total = self.link.wait(self._handle).float()
        if self.scale:
            total /= self.scale
        self.scale = self._fitting(float(total.abs().amax()))
        return total

    def state_dict(self) -> State:
        """The scale."""
        return {"scale": torch.tensor(self.scale)}

    def load_state_dict(self, state: State) -> None:
        """Take the scale over."""
        self.scale = float(state["scale"])

    def _fitting(self, largest: float) -> float:
        if largest == 0 or not math.isfinite(largest):
            return 0.0
        digits = math.floor(math.log2(PEAK / largest)) - math.ceil(math.log2(self.link.size))
        return 2.0 ** min(max(digits, -126), 126)  # the powers that fp32 has an inverse of
