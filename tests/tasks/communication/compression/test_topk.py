from __future__ import annotations

import math

import torch

from tasks.communication.compression.coded import TopK, largest
from tasks.communication.link import Link
from tests.tasks.communication.compression.samples import CPU, step


def test_by_hand() -> None:
    compressor = TopK("topk", [torch.Size([5])], Link(), CPU, share=0.4)
    gradient = torch.tensor([1.0, -5.0, 0.5, 3.0, 2.0])
    assert step(compressor, gradient).tolist() == [0.0, -5.0, 0.0, 3.0, 0.0]
    assert compressor.residual.tolist() == [1.0, 0.0, 0.5, 0.0, 2.0]
    assert step(compressor, gradient).tolist() == [0.0, -5.0, 0.0, 0.0, 4.0]


def test_the_threshold_changes_nothing() -> None:
    for sizes in (torch.randn(20_000).abs(), torch.cat([torch.zeros(19_000), torch.rand(1000)]), torch.ones(20_000)):
        for count in (1, 50, 2000, 20_000):
            found = largest(sizes, count)
            assert len(set(found.tolist())) == count
            assert torch.equal(sizes[found].sort().values, sizes.topk(count).values.sort().values)


def test_a_nan_is_sent_wherever_it_is() -> None:
    for position in (0, 1, 60, 19_999):
        sizes = torch.rand(20_000)
        sizes[position] = math.nan
        assert position in largest(sizes, 10)


def test_bytes() -> None:
    compressor = TopK("topk", [torch.Size([10_000])], Link(), CPU, share=0.01)
    assert compressor.encode(torch.randn(10_000)).nbytes == 100 * 8
