from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tasks.communication.compression.coded import OneBit, Quantized, TopK, largest, pack, pack4, unpack, unpack4
from tasks.communication.link import Link
from tests.tasks.communication.compression.samples import CPU, step


def test_the_round_trip_of_signs_against_numpy() -> None:
    values = np.random.default_rng(0).normal(size=(3, OneBit.block)).astype(np.float32)
    expected = np.where(values >= 0, 1, -1) * np.abs(values).mean(axis=1, keepdims=True)
    compressor = OneBit("onebit", [torch.Size([3 * OneBit.block])], Link(), CPU)
    decoded = compressor.decode(compressor.encode(torch.from_numpy(values).flatten()), 3 * OneBit.block)
    np.testing.assert_allclose(decoded.numpy().reshape(3, OneBit.block), expected, rtol=1e-6)


def test_signs_by_hand() -> None:
    compressor = OneBit("onebit", [torch.Size([2, 2])], Link(), CPU)
    gradient = torch.tensor([5.0, -1.0, 0.0, -2.0])
    assert step(compressor, gradient).tolist() == [2.0, -2.0, 2.0, -2.0]  # of a short block the mean is its own
    assert compressor.residual.tolist() == [3.0, 1.0, -2.0, 0.0]
    assert step(compressor, gradient).tolist() == [3.0, 3.0, -3.0, -3.0]


def test_signs_are_packed_eight_to_a_byte() -> None:
    bits = torch.from_numpy(np.random.default_rng(1).integers(0, 2, 80).astype(bool))
    code = pack(bits)
    rows = bits.view(8, 10).numpy()
    np.testing.assert_array_equal(code.numpy(), np.packbits(rows, axis=0, bitorder="little")[0])
    assert torch.equal(unpack(code), bits.to(torch.uint8))


def test_thirty_times_fewer_bytes() -> None:
    elements = 4 * 2**20 + 77
    compressor = OneBit("onebit", [torch.Size([elements])], Link(), CPU)
    assert elements * 4 / compressor.encode(torch.randn(elements)).nbytes > 31.4


@pytest.mark.parametrize(("bits", "top"), [(8, 127), (4, 7)])
def test_the_round_trip_of_integers_against_numpy(bits: int, top: int) -> None:
    values = np.random.default_rng(0).normal(size=3 * Quantized.block).astype(np.float32) ** 3
    blocks = values.reshape(3, Quantized.block)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(top)
    expected = np.rint(blocks / scales) * scales
    compressor = Quantized("quantized", [torch.Size([3 * Quantized.block])], Link(), CPU, bits)
    decoded = compressor.decode(compressor.encode(torch.from_numpy(values)), 3 * Quantized.block)
    np.testing.assert_array_equal(decoded.numpy().reshape(3, Quantized.block), expected)


def test_integers_by_hand() -> None:
    compressor = Quantized("quantized", [torch.Size([4])], Link(), CPU, bits=4)
    gradient = torch.tensor([7.0, -3.4, 0.6, -0.4])
    assert step(compressor, gradient).tolist() == [7.0, -3.0, 1.0, 0.0]
    torch.testing.assert_close(compressor.residual, torch.tensor([0.0, -0.4, -0.4, -0.4]))
    assert step(compressor, gradient).tolist() == [7.0, -4.0, 0.0, -1.0]


def test_four_bits_are_packed_two_to_a_byte() -> None:
    numbers = torch.arange(-8, 8, dtype=torch.int8)
    code = pack4(numbers)
    assert code.tolist() == [low | low + 8 << 4 for low in range(8)]
    assert torch.equal(unpack4(code), numbers)


@pytest.mark.parametrize(("bits", "ratio"), [(8, 3.9), (4, 7.7)])
def test_the_bytes_of_integers(bits: int, ratio: float) -> None:
    elements = 1000 * Quantized.block
    compressor = Quantized("quantized", [torch.Size([elements])], Link(), CPU, bits)
    assert elements * 4 / compressor.encode(torch.randn(elements)).nbytes > ratio


def test_the_largest_elements_by_hand() -> None:
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


def test_the_bytes_of_the_largest_elements() -> None:
    compressor = TopK("topk", [torch.Size([10_000])], Link(), CPU, share=0.01)
    assert compressor.encode(torch.randn(10_000)).nbytes == 100 * 8
