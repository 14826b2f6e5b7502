from __future__ import annotations

import math

import numpy as np
import torch

from tasks.communication.compression.powersgd import PowerSGD
from tasks.communication.link import Handle, Link
from tests.tasks.communication.compression.samples import CPU, SHAPES, gradient, step


def low_rank(rows: int, columns: int, rank: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(rows)
    return torch.randn(rows, rank, generator=random) @ torch.randn(rank, columns, generator=random)


def test_matrices_of_low_rank_and_small_ones_are_exact_at_once() -> None:
    matrices = [low_rank(40, 30, rank=2), torch.randn(2, 3), low_rank(25, 60, rank=1)]
    whole = torch.cat([matrix.flatten() for matrix in matrices])
    compressor = PowerSGD("powersgd", SHAPES, Link(), CPU, rank=2)
    for _ in range(3):
        torch.testing.assert_close(step(compressor, whole), whole, rtol=1e-4, atol=1e-5)
    assert compressor.residual.abs().amax() < 1e-4


def test_a_repeated_gradient_is_approximated_as_well_as_its_singular_values_allow() -> None:
    matrix = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32))
    matrix += 10 * low_rank(40, 30, rank=2)
    compressor = PowerSGD("powersgd", SHAPES[:1], Link(), CPU, rank=2)
    left, sizes, right = np.linalg.svd(matrix.numpy())
    best = left[:, :2] * sizes[:2] @ right[:2]
    for _ in range(5):  # power iteration warms up; without residual it is that alone
        compressor.residual = torch.zeros(1200)
        total = step(compressor, matrix.flatten())
    np.testing.assert_allclose(total.view(40, 30).numpy(), best, atol=0.05)


def test_one_step_against_numpy() -> None:
    compressor = PowerSGD("powersgd", SHAPES[:1], Link(), CPU, rank=3)
    basis = compressor.basis.view(30, 3).numpy()
    matrix = gradient(0)[:1200].view(40, 30).numpy()
    left = np.linalg.qr(matrix @ basis)[0]
    total = step(compressor, gradient(0)[:1200]).view(40, 30)
    np.testing.assert_allclose(total.numpy(), left @ left.T @ matrix, atol=1e-5)
    np.testing.assert_allclose(compressor.residual.view(40, 30).numpy(), matrix - left @ left.T @ matrix, atol=1e-5)
    np.testing.assert_allclose(compressor.basis.view(30, 3).numpy(), matrix.T @ left, atol=1e-5)


class Recording(Link):
    """Remembers how many elements left at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def all_reduce(self, tensor: torch.Tensor, name: str) -> Handle:
        self.sizes.append(tensor.numel())
        return super().all_reduce(tensor, name)


def test_what_leaves_are_the_narrow_matrices_and_the_small_one() -> None:
    link = Recording()
    step(PowerSGD("powersgd", SHAPES, link, CPU, rank=2), gradient(0))
    assert link.sizes == [(40 + 25) * 2 + 6, (30 + 60) * 2]


def test_a_gradient_without_some_directions_does_not_lose_them_for_good() -> None:
    compressor = PowerSGD("powersgd", SHAPES[:1], Link(), CPU, rank=2)
    one = torch.zeros(40, 30)
    one[0] = 1.0
    step(compressor, one.flatten())  # of rank 1: the second column of the basis is zero
    assert compressor.basis.isfinite().all()
    other = low_rank(40, 30, rank=1).flatten()
    sent = step(compressor, other) + step(compressor, other) + step(compressor, other)
    assert math.isclose(float((sent + compressor.residual - 3 * other).norm()), 0, abs_tol=1e-3)
    assert (sent - 3 * other).norm() < 0.9 * 3 * other.norm()
