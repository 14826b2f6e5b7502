from __future__ import annotations

import numpy as np
import torch

from tasks.communication.compression.coded import OneBit, pack, unpack
from tasks.communication.link import Link
from tests.tasks.communication.compression.samples import CPU, step


def test_the_round_trip_against_numpy() -> None:
    values = np.random.default_rng(0).normal(size=(3, OneBit.block)).astype(np.float32)
    expected = np.where(values >= 0, 1, -1) * np.abs(values).mean(axis=1, keepdims=True)
    compressor = OneBit("onebit", [torch.Size([3 * OneBit.block])], Link(), CPU)
    decoded = compressor.decode(compressor.encode(torch.from_numpy(values).flatten()), 3 * OneBit.block)
    np.testing.assert_allclose(decoded.numpy().reshape(3, OneBit.block), expected, rtol=1e-6)


def test_by_hand() -> None:
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
