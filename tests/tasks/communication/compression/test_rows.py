from __future__ import annotations

import math

import torch

from tasks.communication.link import Link
from tasks.communication.rows import SparseRows
from tests.tasks.communication.compression.samples import CPU

SHAPE = torch.Size([100, 3])


def test_rows_keep_every_bit_also_of_what_is_no_number() -> None:
    values = torch.tensor([[1e-45, -0.0, 3e38], [math.nan, math.inf, -math.inf], [0.1, 0.2, 0.3]])
    rows = SparseRows("rows", SHAPE, Link(), CPU)
    for _ in range(2):  # it is used again
        rows.start(torch.sparse_coo_tensor(torch.tensor([[99, 0, 7]]), values, SHAPE))
        total = rows.finish()
        assert total.is_coalesced()
        assert total.indices().tolist() == [[0, 7, 99]]
        assert torch.equal(total.values().view(torch.int32), values[[1, 2, 0]].view(torch.int32))


def test_a_word_that_is_twice_in_a_batch_is_sent_once() -> None:
    rows = SparseRows("rows", SHAPE, Link(), CPU)
    rows.start(torch.sparse_coo_tensor(torch.tensor([[5, 5]]), torch.ones(2, 3), SHAPE))
    assert rows.finish().values().tolist() == [[2.0, 2.0, 2.0]]


def test_no_gradient_is_no_rows() -> None:
    total = SparseRows("rows", SHAPE, Link(), CPU).finish()
    assert total.indices().shape == (1, 0)
    assert total.to_dense().shape == SHAPE
