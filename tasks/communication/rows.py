"""Lossless sums of word embeddings' gradients: only the rows of the words in the batch are exchanged."""

from __future__ import annotations

import torch

from tasks.communication.hosts import Hosts
from tasks.communication.link import Link
from tasks.communication.shared_memory import Host, aligned

ROWS = 4096  # that a rank writes into shared memory at a time; few batches have more different words


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
        """Continue with what depends on the other ranks' rows; here, rows are sent once."""

    def finish(self) -> torch.Tensor:
        """Return the sum, sparse COO and coalesced. A rank without a gradient contributes no rows."""
        if not self._started:
            numbers = torch.empty(1, 0, dtype=torch.long, device=self._device)
            self.start(self._sparse(numbers, torch.empty(0, self._shape[1], device=self._device)))
        rows, self._started = self._receive(), False
        numbers, values = rows[:, 0].long().unsqueeze(0), rows[:, 1:].contiguous().view(torch.float32)
        return self._sparse(numbers, values).coalesce()

    def _send(self, rows: torch.Tensor) -> None:
        self._handle = self._link.all_gather(rows, self._name)

    def _receive(self) -> torch.Tensor:
        return self._link.wait(self._handle)

    def _sparse(self, numbers: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(numbers, values, self._shape, check_invariants=False)


class SharedRows(SparseRows):
    """Gathers rows in memory that the ranks of this host share; `link` counts what this rank reads of the others."""

    def __init__(self, name: str, shape: torch.Size, link: Link, device: torch.device, host: Host) -> None:
        super().__init__(name, shape, link, device)
        self._host, width = host, 1 + shape[1]
        self._regions = [host.take(ROWS * width, torch.int32).view(ROWS, width) for _ in range(host.count)]
        self._written, self._read = host.new_event(), host.new_event()
        self._is_read = True

    def _send(self, rows: torch.Tensor) -> None:
        self._own = rows
        self._write(0)

    def _receive(self) -> torch.Tensor:
        gathered, first, most = [], 0, len(self._own)
        while first == 0 or first < most:
            if first:
                self._write(first)
            counts = [int(count) for count in self._host.wait(self._written)]
            counts.insert(self._host.number, len(self._own))
            most = max(counts)
            parts = [region[: max(0, count - first)] for region, count in zip(self._regions, counts, strict=True)]
            gathered.append(torch.cat(parts))
            self._host.tell(self._read)
            self._is_read = False
            first += ROWS
        rows = torch.cat(gathered) if len(gathered) > 1 else gathered[0]
        self._link.bytes += rows.nbytes - self._own.nbytes
        return rows

    def _write(self, first: int) -> None:
        """Write the next rows when all ranks have read the last ones, and tell how many this rank has in all."""
        if not self._is_read:
            self._host.wait(self._read)
        rows = self._own[first : first + ROWS]
        self._regions[self._host.number][: len(rows)] = rows
        self._host.tell(self._written, len(self._own))


def rows_room(features: int, count: int) -> int:
    """Return the bytes of shared memory that rows with this many features take among `count` ranks."""
    return count * aligned(4 * ROWS * (1 + features))


class HostRowsFirst(SparseRows):
    """Sums inside each host, in its memory or by Gloo, then across the hosts, then sends the rows inside each host."""

    def __init__(
        self, name: str, shape: torch.Size, hosts: Hosts, across: Link, device: torch.device, host: Host | None = None
    ) -> None:
        super().__init__(name, shape, across, device)
        inside = f"{name}.inside", shape, hosts.inside, device
        self._inside = SharedRows(*inside, host) if host else SparseRows(*inside)
        self._speaks = hosts.is_leader

    def start(self, gradient: torch.Tensor) -> None:
        """Start to sum inside the host."""
        self._inside.start(gradient)

    def proceed(self) -> None:
        """Start to gather the hosts' rows."""
        total = self._inside.finish()
        if self._speaks:
            super().start(total)

    def finish(self) -> torch.Tensor:
        """Wait for the sum, and gather its rows inside the host, where only the leader has any."""
        if self._speaks:
            self._inside.start(super().finish())
        return self._inside.finish()
