"""Four ranks that act as two hosts of two."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.communication import shared_memory
from tasks.communication.hosts import GlooInside, HostFirst, Hosts, SharedSum, room
from tasks.communication.link import Link
from tasks.communication.ranks import ranks_by_host
from tasks.communication.rows import HostRowsFirst, rows_room
from tasks.communication.shared_memory import share_memory
from tasks.launching.launch import launch
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tests.tasks.communication.compression.samples import CPU, ELEMENTS, SHAPES, gradient, make, step
from tests.tasks.launching.jobs import losses, make_job
from tests.tasks.launching.ranks import on_ranks

#: Four ranks on few cores take minutes.
pytestmark = pytest.mark.long
WORDS = torch.Size([6, 2])


def table(rank: int) -> torch.Tensor:
    """A rank's gradient of a table, in two of its rows."""
    values = torch.randn(2, 2, generator=torch.Generator().manual_seed(rank))
    return torch.sparse_coo_tensor(torch.tensor([[rank, 5]]), values, WORDS, check_invariants=True)


def sum_over_hosts(folder: Path) -> None:
    """Uncompressed and signs only, with a skipped step; and a table of which rank 1 has no gradient."""
    assert ranks_by_host() == [4]  # of this machine; the layouts below are made up
    hosts, rank = Hosts([2, 2]), hvd.rank()
    found: dict[str, torch.Tensor] = {}
    host = share_memory(3 * room(ELEMENTS, 2) + rows_room(WORDS[1], 2), [2, 2])
    assert host
    for kind, shared in product(("none", "onebit", "powersgd"), (False, True)):
        link = Link(hosts.across)
        sum_here = SharedSum(kind, SHAPES, Link(), CPU, host) if shared else GlooInside(kind, SHAPES, hosts, CPU)
        compressor = HostFirst(make(kind, link=link), sum_here, hosts)
        prefix = f"shared.{kind}" if shared else kind
        for number in range(4):
            poisoned = math.nan if number == 2 and rank == 3 else 1.0
            hvd.barrier()  # nobody reads the last sum any more
            found[f"{prefix}.{number}"] = step(compressor, gradient(number, rank) * poisoned)
            if number == 2:
                compressor.discard_step()
        found[f"own.{prefix}.bytes"] = torch.tensor(link.bytes)
    three = Hosts([1, 2, 1])  # of which the second has more ranks than the others
    compressor = HostFirst(make("int8", link=Link(three.across)), GlooInside("three", SHAPES, three, CPU), three)
    for number in range(2):
        found[f"three.{number}"] = step(compressor, gradient(number, rank))
    found["own.three.residual"] = compressor.state_dict()["residual"]
    for name, memory in (("rows", None), ("shared.rows", host)):
        rows = HostRowsFirst(name, WORDS, hosts, Link(hosts.across), CPU, memory)
        for number in range(2):
            if rank != 1:
                rows.start(table(rank) * (number + 1))
            rows.proceed()
            found[f"{name}.{number}"] = rows.finish().to_dense()
    hvd.barrier()  # or the first rank to end would end Horovod under what the others still send
    save_file(found, folder / f"{rank}.safetensors")


def train_on_two_hosts(folder: Path) -> None:
    """A training, which shares no memory if the folder is called so; every rank writes down its weights."""
    assert ranks_by_host() == [2, 2]
    if folder.name == "gloo":
        shared_memory.FOLDER = "/dev/null"  # no folder, and nobody can make it one
    trainer = build_trainer(Job.read(folder / "job.json"), stopping=lambda: False)
    assert bool(trainer.exchange.owned) == (folder.name != "gloo")
    trainer.run()
    trainer.synchronize_model()
    weights = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    save_file(weights, folder / f"{hvd.rank()}.safetensors")
    hvd.barrier()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("hosts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
        on_ranks(sum_over_hosts, 4, folder)
    return [load_file(folder / f"{rank}.safetensors") for rank in range(4)]


def test_all_ranks_have_the_same_sum_and_see_the_nan_of_one(found: list[dict[str, torch.Tensor]]) -> None:
    for name, value in found[0].items():
        if not name.startswith("own."):
            assert all(torch.equal(value.view(torch.int32), own[name].view(torch.int32)) for own in found), name
            assert value.isfinite().all() == (not name.endswith(".2")), name


def test_uncompressed_it_is_an_all_reduce(found: list[dict[str, torch.Tensor]]) -> None:
    for number in (0, 1, 3):
        expected = sum((gradient(number, rank) for rank in range(4)), torch.zeros(ELEMENTS))
        torch.testing.assert_close(found[0][f"none.{number}"], expected)


def test_shared_memory_changes_nothing(found: list[dict[str, torch.Tensor]]) -> None:
    for name, value in found[0].items():
        if name.startswith("shared."):
            torch.testing.assert_close(value, found[0][name.removeprefix("shared.")], equal_nan=True)
    assert [int(own["own.shared.onebit.bytes"]) for own in found] == [int(own["own.onebit.bytes"]) for own in found]


def test_hosts_send_the_code_of_their_own_sum(found: list[dict[str, torch.Tensor]], horovod: None) -> None:
    hosts = make("onebit"), make("onebit")
    for number in (0, 1, 3):
        sums = (gradient(number, 2 * host) + gradient(number, 2 * host + 1) for host in (0, 1))
        first, second = (step(host, own) for host, own in zip(hosts, sums, strict=True))
        assert torch.equal(found[0][f"onebit.{number}"], first + second)


def test_only_one_rank_of_a_host_uses_the_slow_link(found: list[dict[str, torch.Tensor]]) -> None:
    code = 2 * 4 + 2 * 2048 // 8  # two blocks' sizes and signs
    assert [int(own["own.onebit.bytes"]) for own in found] == [4 * code, 0, 4 * code, 0]
    assert [int(own["own.none.bytes"]) for own in found] == [4 * 4 * ELEMENTS, 0, 4 * 4 * ELEMENTS, 0]


def test_hosts_may_have_different_numbers_of_ranks(found: list[dict[str, torch.Tensor]]) -> None:
    wanted = sum((gradient(number, rank) for number in (0, 1) for rank in range(4)), torch.zeros(ELEMENTS))
    residuals = sum((own["own.three.residual"] for own in found), torch.zeros(ELEMENTS))
    torch.testing.assert_close(found[0]["three.0"] + found[0]["three.1"] + residuals, wanted, rtol=0, atol=1e-4)
    assert [bool(own["own.three.residual"].any()) for own in found] == [True, True, False, True]


def test_rows_too(found: list[dict[str, torch.Tensor]]) -> None:
    expected = sum((table(rank).to_dense() for rank in (0, 2, 3)), torch.zeros(WORDS))
    for number in range(2):
        torch.testing.assert_close(found[0][f"rows.{number}"], expected * (number + 1))


def test_a_training_on_one_host_compresses_nothing_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    alone, two = (
        make_job(tmp_path, epochs=1),
        make_job(tmp_path, {"strategy": "hierarchical", "compression": "onebit"}, epochs=1, ranks=2),
    )
    launch(alone)
    launch(two)
    assert "all ranks share one host, so nothing is compressed" in capfd.readouterr().err
    np.testing.assert_allclose(losses(two.output), losses(alone.output), rtol=1e-4)
    sent = json.loads((two.output / "training.json").read_text())["bytes"]
    assert sent["all"] == 0  # nothing leaves the host
    assert sent["dense"] > 0


def test_a_training_on_two_hosts_is_the_same_with_and_without_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    weights, seen = [], []
    for name in ("shared", "gloo"):
        folder = tmp_path / name
        job = make_job(folder, {"strategy": "hierarchical", "compression": "onebit"}, epochs=1, ranks=4)
        job.write(folder / "job.json")
        on_ranks(train_on_two_hosts, [2, 2], folder)
        first, *others = (load_file(folder / f"{rank}.safetensors") for rank in range(4))
        assert all(torch.equal(value, other[name]) for other in others for name, value in first.items())
        weights.append(first)
        seen.append(losses(job.output))
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-4)
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-3, atol=1e-4)
