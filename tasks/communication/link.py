"""Horovod's collectives among some ranks, with a count of the bytes that this rank receives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import horovod.torch as hvd
import torch

Handle = int


class Link:
    """Starts collectives and waits for them. Their names must be unique among those in flight, and equal on all ranks.

    `bytes` counts what this rank has received. With S bytes on each of N ranks, an all-reduce (a ring) brings
    2 (N - 1) / N S, a reduce-scatter half of that, an all-gather (N - 1) S and a broadcast S.
    """

    def __init__(self, ranks: hvd.ProcessSet = hvd.global_process_set) -> None:
        self._ranks = ranks
        self._completions: dict[Handle, Callable[[torch.Tensor], torch.Tensor]] = {}
        self.bytes = 0

    @property
    def size(self) -> int:
        """The number of ranks."""
        return int(self._ranks.size())

    @property
    def rank(self) -> int:
        """This rank's number among them."""
        return int(self._ranks.rank())

    def all_reduce(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to sum a tensor over the ranks, in place. Do not touch the tensor before `wait` returns."""
        self.bytes += 2 * tensor.nbytes * (self.size - 1) // self.size
        handle: Handle = hvd.allreduce_async_(tensor, name=name, op=hvd.Sum, process_set=self._ranks)
        return handle

    def all_gather(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to concatenate the ranks' tensors in the order of the ranks; their first dimensions may differ."""
        handle: Handle = hvd.allgather_async(tensor, name=name, process_set=self._ranks)
        self._completions[handle] = partial(self._count, kept=tensor.nbytes)
        return handle

    def all_to_all(self, parts: Sequence[torch.Tensor], name: str) -> Handle:
        """Start to send each other rank its part, fp32 or uint8 [n]; the result joins theirs in their order."""
        others = [part[:0] if rank == self.rank else part for rank, part in enumerate(parts)]
        sizes = torch.tensor([len(part) for part in others], dtype=torch.int32)
        handle: Handle = hvd.alltoall_async(torch.cat(others), sizes, name=name, process_set=self._ranks)
        self._completions[handle] = self._count
        return handle

    def reduce_scatter(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to sum a tensor [n], n a multiple of the number of ranks; each rank receives one part, in place."""
        # Over Gloo, Horovod's own reduce-scatter takes three to four times the CPU time.
        parts = tensor.chunk(self.size)
        handle = self.all_to_all(parts, name)
        self._completions[handle] = lambda received: _add(parts[self.rank], self._count(received))
        return handle

    def broadcast(self, tensor: torch.Tensor, root: int, name: str) -> Handle:
        """Start to copy the tensor of the rank `root` (its number among all ranks) to the others, in place."""
        self.bytes += tensor.nbytes if hvd.rank() != root else 0
        handle: Handle = hvd.broadcast_async_(tensor, root, name=name, process_set=self._ranks)
        return handle

    def wait(self, handle: Handle) -> torch.Tensor:
        """Wait for a collective, and return its result."""
        result: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = hvd.synchronize(handle)
        received = result[0] if isinstance(result, tuple) else result  # an all-to-all also returns sizes
        complete = self._completions.pop(handle, None)
        return complete(received) if complete else received

    def _count(self, result: torch.Tensor, kept: int = 0) -> torch.Tensor:
        self.bytes += result.nbytes - kept
        return result


def process_set(ranks: Sequence[int]) -> hvd.ProcessSet:
    """Return the process set of these ranks. All ranks call it; Horovod must allow dynamic process sets."""
    return hvd.global_process_set if len(ranks) == hvd.size() else _added(tuple(ranks))


@cache  # Horovod refuses a second set of the same ranks.
def _added(ranks: tuple[int, ...]) -> hvd.ProcessSet:
    return hvd.add_process_set(list(ranks))


def _add(own: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
    for part in torch.split(received, len(own)) if len(received) else ():
        own += part
    return own
