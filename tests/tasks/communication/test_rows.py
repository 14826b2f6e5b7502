"""Two ranks gather rows through shared memory, and the same rows through Gloo."""

from __future__ import annotations

import time
from pathlib import Path

import horovod.torch as hvd
import torch

from tasks.communication import rows as sparse_rows
from tasks.communication.link import Link
from tasks.communication.rows import SharedRows, SparseRows, rows_room
from tasks.communication.shared_memory import share_memory
from tests.tasks.communication.compression.samples import CPU
from tests.tasks.launching.ranks import on_ranks

WORDS = torch.Size([20, 5])
AT_ONCE = 3
#: How many rows the two ranks have in each step; 0 is no gradient.
STEPS = ((7, 2), (0, 3), (4, 4), (0, 0), (3, 9), (1, 0), (0, 12))


def gradient(step: int, rank: int) -> torch.Tensor:
    """A gradient with as many rows as the rank has in the step."""
    random = torch.Generator().manual_seed(2 * step + rank)
    words = torch.randperm(WORDS[0], generator=random)[: STEPS[step][rank]]
    values = torch.randn(len(words), WORDS[1], generator=random)
    values.view(-1)[1:2] = float("nan")
    return torch.sparse_coo_tensor(words[None], values, WORDS)


def gather_both_ways(folder: Path) -> None:
    """Steps in which one rank or the other is late, with rows that are written in several turns."""
    sparse_rows.ROWS, rank = AT_ONCE, hvd.rank()
    host = share_memory(rows_room(WORDS[1], 2), [2])
    assert host
    memory, gloo = Link(), Link()
    ways = SharedRows("shared", WORDS, memory, CPU, host), SparseRows("gloo", WORDS, gloo, CPU)
    for step, counts in enumerate(STEPS):
        totals = []
        for rows in ways:
            time.sleep(0.05 * (step % 2 == rank))
            if counts[rank]:
                rows.start(gradient(step, rank))
            rows.proceed()
            totals.append(rows.finish())
        shared, expected = totals
        assert shared.is_coalesced()
        assert torch.equal(shared.indices(), expected.indices())
        assert torch.equal(shared.values().view(torch.int32), expected.values().view(torch.int32))
    assert memory.bytes == gloo.bytes == 4 * (1 + WORDS[1]) * sum(counts[1 - rank] for counts in STEPS)
    (folder / f"{rank}.done").touch()


def test_the_sum_is_that_of_gloo_to_the_bit_in_any_number_of_turns(tmp_path: Path) -> None:
    on_ranks(gather_both_ways, 2, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.done", "1.done"]
