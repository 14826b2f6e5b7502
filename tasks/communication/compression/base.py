"""The interface of compressors, and error feedback, which most lossy compressors need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from tasks.communication.link import Handle, Link
from tasks.communication.state import State


class Compressor(ABC):
    """Sums one bucket's gradient over the ranks of a link.

    Every step calls `start` (while the backward pass still runs), `proceed` when all buckets have started, then
    `finish`, and `discard_step` when the step is then skipped.
    """

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device) -> None:
        """Compress a bucket of parameters of these shapes, whose gradients are on `device`, over a link."""
        self.name = name
        self.shapes = tuple(shapes)
        self.link = link
        self.device = device

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


class ErrorFeedback(Compressor):
    """Keeps the part of a step's gradient that was not sent, and adds it to the gradient of the next step.

    At any time, what this rank has sent plus the residual equals the sum of its gradients (Seide et al. 2014;
    Karimireddy et al. 2019).

    Attributes:
        residual: the part that was not sent yet, fp32 [elements].
    """

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device) -> None:
        super().__init__(name, shapes, link, device)
        self.residual = torch.zeros(self.elements, device=device)
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


class Coded(ErrorFeedback):
    """Sends a code of gradient plus residual. The codes are gathered, and every rank adds what they decode to."""

    _handle: Handle = -1

    @abstractmethod
    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """Encode fp32 [n] as uint8, whose length depends on n alone. NaN and infinity must decode to such again."""

    @abstractmethod
    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """Decode a code of `count` elements to fp32 [count]."""

    def start(self, gradient: torch.Tensor) -> None:
        """Send the code of gradient plus residual."""
        wanted = gradient.add_(self.residual)
        code = self.encode(wanted)
        self.keep(wanted - self.decode(code, self.elements))
        self._handle = self.link.all_gather(code, self.name)

    def finish(self) -> torch.Tensor:
        """Decode the ranks' codes, and add them."""
        first, *others = self.link.wait(self._handle).chunk(self.link.size)
        total = self.decode(first, self.elements)
        for code in others:
            total += self.decode(code, self.elements)
        return total
