"""This process among the ranks of its training, which is rank 0 of 1 until Horovod, if it is needed, is initialized."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch


def connected() -> bool:
    """Return whether Horovod is initialized."""
    return _horovod() is not None


def rank() -> int:
    """Return this rank's number among all ranks."""
    return int(_horovod().rank()) if connected() else 0


def size() -> int:
    """Return the number of all ranks."""
    return int(_horovod().size()) if connected() else 1


def local_rank() -> int:
    """Return this rank's number among those of its host."""
    return int(_horovod().local_rank()) if connected() else 0


def local_size() -> int:
    """Return the number of ranks of this rank's host."""
    return int(_horovod().local_size()) if connected() else 1


def ranks_by_host() -> list[int]:
    """Return the number of ranks on each host. Horovod numbers the ranks host by host."""
    local = gather_rows(torch.tensor([local_rank()]), name="local_rank").tolist()
    firsts = [index for index, number in enumerate(local) if number == 0]
    return [end - first for first, end in pairwise([*firsts, len(local)])]


def split_by_host(counts: Sequence[int]) -> list[range]:
    """Return the ranks of each host, given the number of ranks on each (see ranks_by_host)."""
    return [range(first, end) for first, end in pairwise(accumulate(counts, initial=0))]


def sum_over_ranks(values: Iterable[float], name: str) -> list[float]:
    """Return each value summed over all ranks, in double precision."""
    own, horovod = torch.tensor(list(values), dtype=torch.float64), _horovod()
    total = horovod.allreduce(own, op=horovod.Sum, name=name) if horovod else own
    return [float(value) for value in total]


def gather_rows(rows: torch.Tensor, name: str) -> torch.Tensor:
    """Return the rows of all ranks in the order of the ranks; a rank may have none."""
    horovod = _horovod()
    gathered: torch.Tensor = horovod.allgather(rows, name=name) if horovod else rows
    return gathered


def gather_bytes(own: bytes, name: str) -> list[bytes]:
    """Return the bytes of all ranks, which have the same length, in the order of the ranks."""
    rows = gather_rows(torch.tensor([list(own)], dtype=torch.uint8), name)
    return [bytes(row) for row in rows.tolist()]


def _horovod() -> Any:
    horovod = sys.modules.get("horovod.torch")
    return horovod if horovod and horovod.is_initialized() else None
