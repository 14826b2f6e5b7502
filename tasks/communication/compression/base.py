"""The interface of compressors, sums in fp32 and fp16, and error feedback."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from tasks.communication.link import Handle, Link
from tasks.communication.state import State


class Compressor(ABC):
    """Sums a bucket's gradient over a link: every step calls `start`, `proceed` when all have started, `finish`."""

    _handle: Handle = -1

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device) -> None:
        self.name, self.shapes, self.link, self.device = name, tuple(shapes), link, device

    @property
    def elements(self) -> int:
        """The number of elements of the bucket's gradient."""
        return sum(shape.numel() for shape in self.shapes)

    @abstractmethod
    def start(self, gradient: torch.Tensor) -> None:
        """Send this rank's gradient, fp32 [elements], without a loss scale. It may be overwritten."""

    def proceed(self) -> None:  # noqa: B027  # most compressors send only once
        """Wait for what `start` sent, and send what depends on it."""

    @abstractmethod
    def finish(self) -> torch.Tensor:
        """Return the sum over the ranks, fp32 [elements], equal on all of them. NaN and infinity survive."""

    def discard_step(self) -> None:  # noqa: B027  # compressors without state have nothing to do
        """Restore the state that the compressor had before the step."""

    def state_dict(self) -> State:
        """Return what the next step depends on."""
        return {}

    def load_state_dict(self, state: State) -> None:  # noqa: B027
        """Replace the state."""


class Uncompressed(Compressor):
    """Sums in fp32."""

    def start(self, gradient: torch.Tensor) -> None:
        """Start the all-reduce."""
        self._handle = self.link.all_reduce(gradient, self.name)

    def finish(self) -> torch.Tensor:
        """Wait for the sum."""
        return self.link.wait(self._handle)


class ErrorFeedback(Compressor):
    """Adds what a step has not sent to the next step's gradient (Seide et al. 2014; Karimireddy et al. 2019)."""

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device) -> None:
        super().__init__(name, shapes, link, device)
        self.residual = torch.zeros(self.elements, device=device)  # the part that was not sent yet, fp32 [elements]
        self._before = self.residual

    def keep(self, residual: torch.Tensor) -> None:
        """Replace the residual, and hold the one before until the next step, in case this step is skipped."""
        self._before, self.residual = self.residual, residual

    def discard_step(self) -> None:
        """Restore the residual, so that the NaN of a skipped step does not stay."""
        self.residual = self._before

    def state_dict(self) -> State:
        """Return the residual."""
        return {"residual": self.residual}

    def load_state_dict(self, state: State) -> None:
        """Replace the residual."""
        self.residual = state["residual"].to(self.device)


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
