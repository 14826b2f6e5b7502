"""The exchange of word embeddings' gradients: only the rows of the words that are in the batch. Nothing is lost."""

from __future__ import annotations

import torch

from tasks.communication.link import Handle, Link


class SparseRows:
    """Sums a row-sparse gradient [words, features] over the ranks: the ranks' rows, each behind its number."""

    def __init__(self, name: str, shape: torch.Size, link: Link, device: torch.device) -> None:
        self._name, self._shape, self._link, self._device = name, shape, link, device
        self._handle: Handle | None = None

    def start(self, gradient: torch.Tensor) -> None:
        """Send a sparse COO gradient's rows, fp32. They travel as int32 with the same bits, as their numbers do."""
        rows = gradient.coalesce()
        numbers = rows.indices()[0].int().unsqueeze(1)
        self._handle = self._link.all_gather(torch.cat([numbers, rows.values().view(torch.int32)], dim=1), self._name)

    def proceed(self) -> None:
        """Nothing follows."""

    def finish(self) -> torch.Tensor:
        """The sum, sparse COO and coalesced. A rank that had no gradient takes part with no rows."""
        if self._handle is None:
            self.start(self._nothing())
        assert self._handle is not None
        rows, self._handle = self._link.wait(self._handle), None
        numbers, values = rows[:, 0].long().unsqueeze(0), rows[:, 1:].contiguous().view(torch.float32)
        return self._sparse(numbers, values).coalesce()

    def _nothing(self) -> torch.Tensor:
        numbers = torch.empty(1, 0, dtype=torch.long, device=self._device)
        return self._sparse(numbers, torch.empty(0, self._shape[1], device=self._device))

    def _sparse(self, numbers: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(numbers, values, self._shape, check_invariants=False)
