from __future__ import annotations

import numpy as np
import pytest
import torch

from tasks.communication.compression.coded import Quantized, pack4, unpack4
from tasks.communication.link import Link
from tests.tasks.communication.compression.samples import CPU, step


@pytest.mark.parametrize(("bits", "top"), [(8, 127), (4, 7)])
def test_the_round_trip_against_numpy(bits: int, top: int) -> None:
    values = np.random.default_rng(0).normal(size=3 * Quantized.block).astype(np.float32) ** 3
    blocks = values.reshape(3, Quantized.block)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(top)
    expected = np.rint(blocks / scales) * scales
    compressor = Quantized("quantized", [torch.Size([3 * Quantized.block])], Link(), CPU, bits)
    decoded = compressor.decode(compressor.encode(torch.from_numpy(values)), 3 * Quantized.block)
    np.testing.assert_array_equal(decoded.numpy().reshape(3, Quantized.block), expected)


def test_by_hand() -> None:
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
def test_bytes(bits: int, ratio: float) -> None:
    elements = 1000 * Quantized.block
    compressor = Quantized("quantized", [torch.Size([elements])], Link(), CPU, bits)
    assert elements * 4 / compressor.encode(torch.randn(elements)).nbytes > ratio
