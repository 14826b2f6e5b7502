"""Sums of word embeddings' gradients through the memory that the ranks of a host share."""

from __future__ import annotations

import torch

from tasks.communication.compression.sparse_rows import SparseRows
from tasks.communication.link import Link
from tasks.communication.shared_memory import Host, aligned

ROWS = 4096  # that a rank writes at a time; few batches have more different words


class SharedRows(SparseRows):
    """Gathers the rows of the ranks of this host: each rank writes its own, and reads those of all."""

    def __init__(self, name: str, shape: torch.Size, link: Link, device: torch.device, host: Host) -> None:
        """Gather among the ranks of the host; `link` counts what this rank reads of the others, as of an all-gather."""
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
        """Write the next rows where all ranks have read the last ones, and tell how many this rank has in all."""
        if not self._is_read:
            self._host.wait(self._read)
        rows = self._own[first : first + ROWS]
        self._regions[self._host.number][: len(rows)] = rows
        self._host.tell(self._written, len(self._own))


def rows_room(features: int, count: int) -> int:
    """Return the bytes of shared memory that the rows of embeddings of so many features take among so many ranks."""
    return count * aligned(4 * ROWS * (1 + features))
