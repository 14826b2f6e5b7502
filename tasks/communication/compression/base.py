"""What every way of summing a gradient over the ranks offers, and error feedback, which most lossy ones need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from tasks.communication.link import Handle, Link
from tasks.communication.state import State


class Compressor(ABC):
    """Sums one bucket's gradient over the ranks of a link.

    Every step: start (while backward still runs), proceed once all buckets have started, then finish; and forget when
    the step is then skipped.
    """

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device) -> None:
        """The bucket's name, the shapes of the parameters in it, who to sum with, and where the gradients are."""
        self.name = name
        self.shapes = tuple(shapes)
        self.link = link
        self.device = device

    @property
    def elements(self) -> int:
        """Of the bucket's gradient."""
        return sum(shape.numel() for shape in self.shapes)

    @abstractmethod
    def start(self, gradient: torch.Tensor) -> None:
        """Send off this rank's gradient, fp32 [elements], free of any loss scale; it may be overwritten."""

    def proceed(self) -> None:  # noqa: B027  # most send only once
        """Wait for what start has sent, and send what follows from it."""

    @abstractmethod
    def finish(self) -> torch.Tensor:
        """The sum over the ranks, fp32 [elements], equal on all of them; NaN or infinite if it was on any."""

    def discard_step(self) -> None:  # noqa: B027  # most have nothing to do
        """The step was skipped: be again as before its start."""

    def state_dict(self) -> State:
        """What the next step depends on, for a checkpoint."""
        return {}

    def load_state_dict(self, state: State) -> None:  # noqa: B027
        """Take over what state gave."""


class ErrorFeedback(Compressor):
    """Keeps what it could not send of a step's gradient, and adds it to the next step's.

    So what this rank has sent so far plus the residual is the sum of its gradients so far (Seide et al. 2014;
    Karimireddy et al. 2019).

    Attributes:
        residual: fp32 [elements].
    """

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device) -> None:
        super().__init__(name, shapes, link, device)
        self.residual = torch.zeros(self.elements, device=device)
        self._before = self.residual

    def keep(self, residual: torch.Tensor) -> None:
        """This step's residual; the one before is held until the next step, in case this one is skipped."""
        self._before, self.residual = self.residual, residual

    def discard_step(self) -> None:
        """Put the residual back, so that nothing of a skipped step's NaN stays."""
        self.residual = self._before

    def state_dict(self) -> State:
        """The residual."""
        return {"residual": self.residual}

    def load_state_dict(self, state: State) -> None:
        """Take the residual over."""
        self.residual = state["residual"].to(self.device)


class Coded(ErrorFeedback):
    """Sends a code of gradient plus residual. The codes are gathered; every rank adds up what they stand for."""

    _handle: Handle = -1

    @abstractmethod
    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """The code of fp32 [n]: uint8, as long for all such values. That of NaN or infinity decodes to such again."""

    @abstractmethod
    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """What a code of so many elements stands for, fp32 [count]."""

    def start(self, gradient: torch.Tensor) -> None:
        """Send the code of gradient plus residual."""
        wanted = gradient.add_(self.residual)
        code = self.encode(wanted)
        self.keep(wanted - self.decode(code, self.elements))
        self._handle = self.link.all_gather(code, self.name)

    def finish(self) -> torch.Tensor:
        """Add up what the ranks' codes stand for."""
        first, *others = self.link.wait(self._handle).chunk(self.link.size)
        total = self.decode(first, self.elements)
        for code in others:
            total += self.decode(code, self.elements)
        return total
