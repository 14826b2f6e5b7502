"""No compression: the gradient is summed in fp32."""

from __future__ import annotations

import torch

from tasks.communication.compression.base import Compressor
from tasks.communication.link import Handle


class Uncompressed(Compressor):
    """Sums in fp32."""

    _handle: Handle = -1

    def start(self, gradient: torch.Tensor) -> None:
        """Start the all-reduce."""
        self._handle = self.link.all_reduce(gradient, self.name)

    def finish(self) -> torch.Tensor:
        """Wait for the sum."""
        return self.link.wait(self._handle)
