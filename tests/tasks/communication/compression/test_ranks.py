"""Two ranks agree bit for bit, and with what one process computes from both ranks' gradients."""

from __future__ import annotations

import math
from pathlib import Path

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.communication.link import Link
from tasks.communication.rows import SparseRows
from tests.tasks.communication.compression.samples import CPU, ELEMENTS, KINDS, SHAPES, gradient, make, step
from tests.tasks.launching.ranks import on_ranks

STEPS, SKIPPED = 5, 2
WORDS = torch.Size([6, 2])
ROWS = (torch.tensor([[0, 4]]), torch.tensor([[4, 5]]))
VALUES = (torch.tensor([[0.1, 0.2], [0.3, -0.0]]), torch.tensor([[0.7, 1e-40], [3.0, 4.0]]))


def sum_on_two_ranks(folder: Path) -> None:
    """Every compressor some steps, one of which only rank 1's NaN makes a skipped one; then rows of a table."""
    found: dict[str, torch.Tensor] = {}
    for kind in KINDS:
        compressor = make(kind)
        for number in range(STEPS):
            own = gradient(number, hvd.rank())
            if number == SKIPPED and hvd.rank() == 1:
                own[5] = math.nan
            found[f"{kind}.{number}"] = step(compressor, own)
            if number == SKIPPED:
                compressor.discard_step()
        found |= {f"own.{kind}.{key}": value for key, value in compressor.state_dict().items()}
    rows = SparseRows("rows", WORDS, Link(), CPU)
    rows.start(torch.sparse_coo_tensor(ROWS[hvd.rank()], VALUES[hvd.rank()], WORDS))
    found["rows"] = rows.finish().to_dense()
    if hvd.rank() == 1:
        rows.start(torch.sparse_coo_tensor(ROWS[1], VALUES[1] * math.inf, WORDS))
    found["rows of one"] = rows.finish().to_dense()
    save_file(found, folder / f"{hvd.rank()}.safetensors")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("ranks")
    on_ranks(sum_on_two_ranks, 2, folder)
    return [load_file(folder / f"{rank}.safetensors") for rank in (0, 1)]


def test_ranks_agree_to_the_bit_and_both_see_the_nan_of_one(found: list[dict[str, torch.Tensor]]) -> None:
    for name, total in found[0].items():
        if not name.startswith("own."):
            assert torch.equal(total.view(torch.int32), found[1][name].view(torch.int32)), name
            assert total.isfinite().all() == (not name.endswith(f".{SKIPPED}") and name != "rows of one"), name


@pytest.mark.parametrize("kind", ["none", "int8", "int4", "onebit", "topk"])
def test_the_sum_is_that_of_what_each_rank_sends(found: list[dict[str, torch.Tensor]], kind: str) -> None:
    ranks = make(kind), make(kind)
    for number in range(STEPS):
        if number != SKIPPED:
            first, second = (step(compressor, gradient(number, rank)) for rank, compressor in enumerate(ranks))
            assert torch.equal(found[0][f"{kind}.{number}"], first + second)


def test_fp16_rounds_each_rank_and_the_sum(found: list[dict[str, torch.Tensor]]) -> None:
    for number in set(range(STEPS)) - {SKIPPED}:
        first, second = gradient(number, 0), gradient(number, 1)
        error = (found[0][f"fp16.{number}"] - first - second).abs()
        assert (error <= 2**-11 * (first.abs() + second.abs() + (first + second).abs()) * 1.01 + 1e-8).all()


def test_powersgd_against_numpy(found: list[dict[str, torch.Tensor]]) -> None:
    basis = make("powersgd").state_dict()["basis"][: 30 * 2].view(30, 2).numpy()
    residuals = [np.zeros((40, 30), np.float32)] * 2
    for number in set(range(STEPS)) - {SKIPPED}:
        gradients = [gradient(number, rank)[:1200].view(40, 30).numpy() for rank in (0, 1)]
        wanted = [grad + residual for grad, residual in zip(gradients, residuals, strict=True)]
        left = np.linalg.qr((wanted[0] + wanted[1]) @ np.linalg.qr(basis)[0])[0]
        residuals = [matrix - left @ left.T @ matrix for matrix in wanted]
        basis = (wanted[0] + wanted[1]).T @ left
        total = found[0][f"powersgd.{number}"][:1200].view(40, 30).numpy()
        np.testing.assert_allclose(total, left @ basis.T, atol=1e-4)
    for rank in (0, 1):
        own = found[rank]["own.powersgd.residual"][:1200].view(40, 30).numpy()
        np.testing.assert_allclose(own, residuals[rank], atol=1e-4)


@pytest.mark.parametrize("kind", ["int8", "int4", "onebit", "topk", "powersgd"])
def test_sums_and_both_residuals_are_all_gradients(found: list[dict[str, torch.Tensor]], kind: str) -> None:
    steps = set(range(STEPS)) - {SKIPPED}
    wanted = sum((gradient(number, rank) for number in steps for rank in (0, 1)), torch.zeros(ELEMENTS))
    sent = sum((found[0][f"{kind}.{number}"] for number in steps), torch.zeros(ELEMENTS))
    residuals = sum((ranks[f"own.{kind}.residual"] for ranks in found), torch.zeros(ELEMENTS))
    torch.testing.assert_close(sent + residuals, wanted, rtol=0, atol=1e-4)
    assert sum(shape.numel() for shape in SHAPES) == len(sent)


def test_rows_are_those_of_a_dense_sum(found: list[dict[str, torch.Tensor]]) -> None:
    dense = [torch.sparse_coo_tensor(ROWS[rank], VALUES[rank], WORDS).to_dense() for rank in (0, 1)]
    assert torch.equal(found[0]["rows"], dense[0] + dense[1])
    finite = found[0]["rows of one"].isfinite().all(dim=1)
    assert finite.tolist() == [True, True, True, True, False, False]
