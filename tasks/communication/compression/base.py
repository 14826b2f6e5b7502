"""The interface of compressors, and what they share: error feedback, and sums of codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch

from tasks.communication.link import Handle, Link
from tasks.communication.state import State

GATHERED = 2  # up to this many ranks, an all-gather brings no more bytes, and takes one trip and one rounding


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


class Coded(ErrorFeedback):
    """Sends a code of gradient plus residual. The codes are gathered, and every rank adds what they decode to."""

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


class Recoded(Coded):
    """Every rank sums one shard of the gradient, and sends the code of the sum (DoubleSqueeze, Tang et al. 2019).

    It adds its own shard without encoding it, and keeps the error of the sum's code as the residual of that shard. With
    codes of S bytes, each of N ranks receives 2 (N - 1) / N S; an all-gather would bring (N - 1) S.
    """

    block: int  # elements that are encoded together; shards begin at its multiples

    def start(self, gradient: torch.Tensor) -> None:
        """Send each of the other ranks the code of the shard that it sums."""
        if self.link.size <= GATHERED:
            super().start(gradient)
            return
        shards = torch.split(gradient.add_(self.residual), self._lengths())
        codes = [self.encode(shard) for shard in shards]
        sent = [self.decode(code, len(shard)) for code, shard in zip(codes, shards, strict=True)]
        self._own = shards[self.link.rank].clone()
        self.keep(gradient - torch.cat(sent))
        self._sizes = [len(code) for code in codes]
        self._handle = self.link.all_to_all(codes, self.name)

    def proceed(self) -> None:
        """Sum this rank's shard, and send the code of the sum to all ranks."""
        if self.link.size <= GATHERED:
            return
        for code in self.link.wait(self._handle).chunk(self.link.size - 1):
            self._own += self.decode(code, len(self._own))
        code = self.encode(self._own)
        torch.split(self.residual, self._lengths())[self.link.rank].copy_(self._own - self.decode(code, len(self._own)))
        self._handle = self.link.all_gather(code, f"{self.name}.sum")

    def finish(self) -> torch.Tensor:
        """Decode the codes of the sums."""
        if self.link.size <= GATHERED:
            return super().finish()
        codes = torch.split(self.link.wait(self._handle), self._sizes)
        return torch.cat([self.decode(code, count) for code, count in zip(codes, self._lengths(), strict=True)])

    def _lengths(self) -> list[int]:
        ranks = self.link.size
        length = -(-self.elements // (self.block * ranks)) * self.block
        ends = [min(rank * length, self.elements) for rank in range(ranks + 1)]
        return [end - start for start, end in pairwise(ends)]
