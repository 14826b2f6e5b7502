"""Horovod's collectives among some ranks, with a count of the bytes handed to them."""

from __future__ import annotations

from collections.abc import Iterable

import horovod.torch as hvd
import torch

Handle = int


class Link:
    """Starts collectives and waits for them. Names are unique among those under way, and equal on all ranks.

    Attributes:
        bytes: handed to the wire by this rank so far. A ring of N ranks carries 2 (N - 1) / N times as many for a
            sum, N - 1 times for a gathering; with two ranks both are as many. A sum that is scattered is half of the
            way of one that all receive, and counts half. Alone, a rank sends nothing.
    """

    def __init__(self, ranks: hvd.ProcessSet = hvd.global_process_set) -> None:
        self._ranks = ranks
        self.bytes = 0

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return int(self._ranks.size())

    def sum(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to sum over the ranks, in place; leave the tensor alone until wait."""
        self._count(tensor)
        handle: Handle = hvd.allreduce_async_(tensor, name=name, op=hvd.Sum, process_set=self._ranks)
        return handle

    def gather(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to gather: the ranks' tensors one after the other, which may differ in their first dimension."""
        self._count(tensor)
        handle: Handle = hvd.allgather_async(tensor, name=name, process_set=self._ranks)
        return handle

    def sum_scatter(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to sum; each rank receives its part of the first dimension, which the number of ranks divides."""
        self._count(tensor, ways=0.5)
        handle: Handle = hvd.reducescatter_async(tensor, name=name, op=hvd.Sum, process_set=self._ranks)
        return handle

    def broadcast(self, tensor: torch.Tensor, root: int, name: str) -> Handle:
        """Start to copy the tensor of a rank (numbered among all) to the others, in place."""
        self._count(tensor)
        handle: Handle = hvd.broadcast_async_(tensor, root, name=name, process_set=self._ranks)
        return handle

    def wait(self, handle: Handle) -> torch.Tensor:
        """The result of what was started."""
        result: torch.Tensor = hvd.synchronize(handle)
        return result

    def _count(self, tensor: torch.Tensor, ways: float = 1) -> None:
        if self.size > 1:
            self.bytes += int(ways * tensor.numel() * tensor.element_size())


def sum_over_ranks(values: Iterable[float], name: str) -> list[float]:
    """Each value summed over all ranks, in double precision."""
    summed = hvd.allreduce(torch.tensor(list(values), dtype=torch.float64), op=hvd.Sum, name=name)
    return [float(value) for value in summed]


def gather_rows(rows: torch.Tensor, name: str) -> torch.Tensor:
    """All ranks' rows one after the other; a rank may have none."""
    gathered: torch.Tensor = hvd.allgather(rows, name=name)
    return gathered
