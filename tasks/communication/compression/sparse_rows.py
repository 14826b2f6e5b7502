"""Lossless sums of word embeddings' gradients: only the rows of the words in the batch are exchanged."""

from __future__ import annotations

import torch

from tasks.communication.link import Link


class SparseRows:
    """Sums row-sparse gradients [words, features] by gathering the ranks' rows with their numbers."""

    def __init__(self, name: str, shape: torch.Size, link: Link, device: torch.device) -> None:
        self._name, self._shape, self._link, self._device = name, shape, link, device
        self._started = False

    def start(self, gradient: torch.Tensor) -> None:
        """Send the rows of a sparse COO gradient, fp32. Their bits are sent as int32, like their numbers."""
        rows = gradient.coalesce()
        numbers = rows.indices()[0].int().unsqueeze(1)
        self._send(torch.cat([numbers, rows.values().view(torch.int32)], dim=1))
        self._started = True

    def proceed(self) -> None:
        """Do nothing: rows are sent once."""

    def finish(self) -> torch.Tensor:
        """Return the sum, sparse COO and coalesced. A rank without a gradient contributes no rows."""
        if not self._started:
            self.start(self._nothing())
        rows, self._started = self._receive(), False
        numbers, values = rows[:, 0].long().unsqueeze(0), rows[:, 1:].contiguous().view(torch.float32)
        return self._sparse(numbers, values).coalesce()

    def _send(self, rows: torch.Tensor) -> None:
        """Start to send this rank's rows, int32 [rows, 1 + features]."""
        self._handle = self._link.all_gather(rows, self._name)

    def _receive(self) -> torch.Tensor:
        """Return the rows of all ranks."""
        return self._link.wait(self._handle)

    def _nothing(self) -> torch.Tensor:
        numbers = torch.empty(1, 0, dtype=torch.long, device=self._device)
        return self._sparse(numbers, torch.empty(0, self._shape[1], device=self._device))

    def _sparse(self, numbers: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(numbers, values, self._shape, check_invariants=False)
