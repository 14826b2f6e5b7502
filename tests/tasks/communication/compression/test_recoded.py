"""Three ranks, whose quantized sums are coded again, shard by shard."""

from __future__ import annotations

import math
from pathlib import Path

import horovod.torch as hvd
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.communication.compression.coded import Recoded
from tasks.communication.link import Link
from tests.tasks.communication.compression.samples import ELEMENTS, SHAPES, descend, gradient, make, step
from tests.tasks.launching.ranks import on_ranks

#: Three ranks on few cores take minutes.
pytestmark = pytest.mark.long
QUANTIZERS = ("int8", "int4", "onebit")
RANKS, STEPS, SKIPPED = 3, 5, 2


def sum_on_three_ranks(folder: Path) -> None:
    """Steps with every quantizer, one of them skipped for rank 1's NaN; then least squares with the coarsest."""
    rank, found = hvd.rank(), dict[str, torch.Tensor]()
    for kind in QUANTIZERS:
        link = Link()
        compressor = make(kind, link=link)
        for number in range(STEPS):
            own = gradient(number, rank)
            if number == SKIPPED and rank == 1:
                own[5] = math.nan
            found[f"{kind}.{number}"] = step(compressor, own)
            if number == SKIPPED:
                compressor.discard_step()
        found[f"own.{kind}.residual"] = compressor.state_dict()["residual"]
        found[f"own.{kind}.bytes"] = torch.tensor(link.bytes)
    found["left"] = torch.tensor(loss_after_descent("onebit", share=0.1 + 0.6 * (rank > 0)))
    save_file(found, folder / f"{rank}.safetensors")


def loss_after_descent(kind: str, share: float) -> float:
    """Of least squares, when this rank's gradient is a share of the whole one."""
    compressor = make(kind, SHAPES[:1])
    return descend(lambda whole: step(compressor, whole * share), 100, 0.1)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("recoded")
    on_ranks(sum_on_three_ranks, RANKS, folder)
    return [load_file(folder / f"{rank}.safetensors") for rank in range(RANKS)]


def test_ranks_agree_to_the_bit_and_all_see_the_nan_of_one(found: list[dict[str, torch.Tensor]]) -> None:
    for name, total in found[0].items():
        if not name.startswith("own."):
            assert all(torch.equal(total.view(torch.int32), own[name].view(torch.int32)) for own in found), name
            assert total.isfinite().all() == (not name.endswith(f".{SKIPPED}")), name


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_what_both_codes_miss_is_in_the_residuals(found: list[dict[str, torch.Tensor]], kind: str) -> None:
    steps = set(range(STEPS)) - {SKIPPED}
    wanted = sum((gradient(number, rank) for number in steps for rank in range(RANKS)), torch.zeros(ELEMENTS))
    sent = sum((found[0][f"{kind}.{number}"] for number in steps), torch.zeros(ELEMENTS))
    residuals = sum((own[f"own.{kind}.residual"] for own in found), torch.zeros(ELEMENTS))
    torch.testing.assert_close(sent + residuals, wanted, rtol=0, atol=2e-4)
    assert residuals.norm() > 0.001 * wanted.norm()


def test_least_squares_come_near_the_uncompressed_loss_with_the_coarsest_code(
    found: list[dict[str, torch.Tensor]],
) -> None:
    assert found[0]["left"] < 1e-3


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_a_rank_receives_two_codes_less_what_is_its_own(found: list[dict[str, torch.Tensor]], kind: str) -> None:
    """Those of its shard from the others, and their sums' codes. Gathered, it would be two whole codes."""
    compressor = make(kind)
    assert isinstance(compressor, Recoded)
    lengths = shards(compressor.block, ELEMENTS)
    codes = [len(compressor.encode(torch.zeros(length))) for length in lengths]
    for rank, own in enumerate(found):
        assert int(own[f"own.{kind}.bytes"]) == STEPS * ((RANKS - 1) * codes[rank] + sum(codes) - codes[rank])


def shards(block: int, elements: int) -> list[int]:
    """Elements of each rank's shard: as many blocks for each, as long as there are some."""
    length = -(-elements // (block * RANKS)) * block
    return [max(0, min(length, elements - rank * length)) for rank in range(RANKS)]
