"""Horovod's collectives among some ranks, with a count of the bytes that they bring here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import horovod.torch as hvd
import torch

Handle = int


class Link:
    """Starts collectives and waits for them. Names are unique among those under way, and equal on all ranks.

    Attributes:
        bytes: that this rank has received from the others so far. Over all ranks as many are sent; a rank sends as
            many as it receives wherever all ranks have as much to say. Of S bytes on each of N ranks, a sum (a ring)
            brings 2 (N - 1) / N S, a scattered sum half of that, a gathering (N - 1) S, a copy from another rank S.
    """

    def __init__(self, ranks: hvd.ProcessSet = hvd.global_process_set) -> None:
        self._ranks = ranks
        self._completions: dict[Handle, Callable[[torch.Tensor], torch.Tensor]] = {}
        self.bytes = 0

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return int(self._ranks.size())

    @property
    def rank(self) -> int:
        """This one's number among them."""
        return int(self._ranks.rank())

    def all_reduce(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to sum over the ranks, in place; leave the tensor alone until wait."""
        self.bytes += 2 * tensor.nbytes * (self.size - 1) // self.size
        handle: Handle = hvd.allreduce_async_(tensor, name=name, op=hvd.Sum, process_set=self._ranks)
        return handle

    def all_gather(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to gather: the ranks' tensors one after the other, which may differ in their first dimension."""
        handle: Handle = hvd.allgather_async(tensor, name=name, process_set=self._ranks)
        self._completions[handle] = partial(self._count, kept=tensor.nbytes)
        return handle

    def all_to_all(self, parts: Sequence[torch.Tensor], name: str) -> Handle:
        """Start to give each rank its part: fp32 or uint8 [n], n as the parts have it.

        What arrives are the other ranks' parts for this one, in the order of the ranks. Its own part stays here.
        """
        others = [part[:0] if rank == self.rank else part for rank, part in enumerate(parts)]
        sizes = torch.tensor([len(part) for part in others], dtype=torch.int32)
        handle: Handle = hvd.alltoall_async(torch.cat(others), sizes, name=name, process_set=self._ranks)
        self._completions[handle] = self._count
        return handle

    def reduce_scatter(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to sum; each rank receives its part of a tensor [n], n a multiple of the number of ranks.

        Leave the tensor alone until wait, whose result lies in it. Horovod has a reduce-scatter, too; over Gloo it
        takes three to four times the CPU time of dealing the parts and adding them up here, for the same bytes.
        """
        parts = tensor.chunk(self.size)
        handle = self.all_to_all(parts, name)
        self._completions[handle] = lambda received: _add(parts[self.rank], self._count(received))
        return handle

    def broadcast(self, tensor: torch.Tensor, root: int, name: str) -> Handle:
        """Start to copy the tensor of a rank (numbered among all) to the others, in place."""
        self.bytes += tensor.nbytes if hvd.rank() != root else 0
        handle: Handle = hvd.broadcast_async_(tensor, root, name=name, process_set=self._ranks)
        return handle

    def wait(self, handle: Handle) -> torch.Tensor:
        """The result of what was started."""
        result: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = hvd.synchronize(handle)
        received = result[0] if isinstance(result, tuple) else result  # with what has been dealt come its sizes
        complete = self._completions.pop(handle, None)
        return complete(received) if complete else received

    def _count(self, result: torch.Tensor, kept: int = 0) -> torch.Tensor:
        self.bytes += result.nbytes - kept
        return result


def _add(own: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
    """The sum of parts that are as long as the own one, in the order in which they came."""
    for part in torch.split(received, len(own)) if len(received) else ():
        own += part
    return own


def sum_over_ranks(values: Iterable[float], name: str) -> list[float]:
    """Each value summed over all ranks, in double precision."""
    summed = hvd.allreduce(torch.tensor(list(values), dtype=torch.float64), op=hvd.Sum, name=name)
    return [float(value) for value in summed]


def gather_rows(rows: torch.Tensor, name: str) -> torch.Tensor:
    """All ranks' rows one after the other; a rank may have none."""
    gathered: torch.Tensor = hvd.allgather(rows, name=name)
    return gathered
