from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.communication import exchange as exchange_module
from tasks.communication.exchange import by_kind
from tasks.communication.parameter_server import join
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tests.tasks.communication.serving import HIDDEN, Run, Tensors, assert_equal, tiny_model
from tests.tasks.launching.jobs import losses, make_job
from tests.tasks.launching.ranks import on_ranks

pytestmark = pytest.mark.long

HALF = {"server_parameters": "fp16", "server_momentum": 0.9}
Outputs = dict[tuple[str, bool], Path]  # of trainings, by strategy and sparse_embeddings


def on_two_ranks(folder: Path) -> None:
    """What the tests below look at, in one launch."""
    train_as_told(folder)
    skip_and_stop_together()
    count_bytes()
    resume_to_the_bit(staleness=1, server_momentum=0.9)
    save(resume_to_the_bit(**HALF), folder)


def on_three_ranks(folder: Path) -> None:
    """Go on with what two ranks have left."""
    train_as_told(folder)
    run = Run(**HALF)
    run.server.load_state_dict(run.server.redistribute(saved(folder.with_name("2"), "server")))
    run.optimizer.load_state_dict(run.server.redistribute(saved(folder.with_name("2"), "adamw")))
    run.server.receive_parameters()
    save(run, folder)
    run.step(9)
    run.server.receive_parameters()  # or the first rank to end would end Horovod under what the others still send


def train_as_told(folder: Path) -> None:
    exchange_module.BUCKET_BYTES = 8192  # so that the tiny model has many
    for file in sorted(folder.glob("job-*.json")):
        trainer = build_trainer(Job.read(file), stopping=lambda: False)
        trainer.exchange.sharded = True  # all-reduce, too, catches rows up when their gradient comes, as a server does
        trainer.run()


def skip_and_stop_together() -> None:
    run, one_of_two = Run(server_momentum=0.9), hvd.rank() == 1
    assert not run.step(1)[1]
    run.server.receive_parameters()
    before = run.state_dict()
    norm, stop = run.step(2, wish=one_of_two, factor=math.nan if one_of_two else 1.0)
    assert math.isnan(norm)
    assert stop
    assert_equal(run.state_dict(), before)


def count_bytes() -> None:
    """Half of a step's gradient in fp32, and of the parameters: the other's. Two divides the tiny model's sizes."""
    for dtype, size in (("fp32", 4), ("fp16", 2)):
        run = Run(server_parameters=dtype)
        run.step(1)
        run.server.receive_parameters()
        for kind in ("matrices", "rest"):
            elements = sum(parameter.numel() for parameter in by_kind(run.model)[kind].values())
            assert run.server.bytes_received()[kind] == elements // 2 * (4 + size)


def resume_to_the_bit(**communication: Any) -> Run:
    run = Run(**communication)
    for number in range(1, 5):
        run.step(number)
    state = run.state_dict()
    expected = go_on(run)
    again = Run(**communication)
    again.load_state_dict(state)
    assert_equal(go_on(again), expected)
    return run


def go_on(run: Run) -> tuple[list[float], dict[str, Tensors], dict[str, Tensors]]:
    """Four steps' norms, the state after them, and that when nothing is under way any more."""
    norms = [run.step(number)[0] for number in range(5, 9)]
    ended = run.state_dict()
    run.server.receive_parameters()
    return norms, ended, run.state_dict()


def save(run: Run, folder: Path) -> None:
    for part, values in run.state_dict().items():
        save_file(values, folder / f"{part}-{hvd.rank()}.safetensors")


def saved(folder: Path, part: str) -> list[Tensors]:
    """What each rank has saved."""
    return [load_file(file) for file in sorted(folder.glob(f"{part}-*.safetensors"))]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Below it, in a folder for each number of ranks, what was saved there."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def trained(root: Path) -> dict[int, Outputs]:
    """By number of ranks."""
    return {2: launched(root, on_two_ranks, 2), 3: launched(root, on_three_ranks, 3)}


def launched(root: Path, function: Callable[[Path], None], ranks: int) -> Outputs:
    folder, outputs = root / str(ranks), dict[tuple[str, bool], Path]()
    folder.mkdir()
    for strategy, sparse in product(("all-reduce", "parameter-server"), (True, False)):
        values: dict[str, Any] = {
            "ranks": ranks,
            "batch_size": 6,
            "epochs": 1,
            "evaluations": 1,
            "sparse_embeddings": sparse,
        }
        job = make_job(root, {"strategy": strategy}, **values)
        outputs[strategy, sparse] = job.output
        job.write(folder / f"job-{strategy}-{sparse}.json")
    on_ranks(function, ranks, folder)
    return outputs


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("ranks", [2, 3])
def test_it_equals_all_reduce(trained: dict[int, Outputs], ranks: int, sparse: bool) -> None:
    served, reduced = trained[ranks]["parameter-server", sparse], trained[ranks]["all-reduce", sparse]
    assert len(losses(served)) == 10
    np.testing.assert_allclose(losses(served), losses(reduced), rtol=1e-5)
    expected, found = (load_file(folder / "model" / "model.safetensors") for folder in (reduced, served))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("ranks", [2, 3])
def test_masters_and_moments_take_a_rank_its_share_of_the_memory(root: Path, ranks: int) -> None:
    share = sum(parameter.numel() for parameter in tiny_model().parameters()) / ranks
    for part in ("server", "adamw"):  # master and momentum, both moments
        for state in saved(root / str(ranks), part):
            large = [values for name, values in state.items() if values.ndim and not name.endswith(".postponed")]
            assert sum(values.numel() for values in large) <= 2 * (share + ranks * HIDDEN)


@pytest.mark.usefixtures("trained")
def test_another_number_of_ranks_takes_over(root: Path) -> None:
    two, three = root / "2", root / "3"
    assert (len(saved(two, "server")), len(saved(three, "server"))) == (2, 3)
    for part in ("server", "adamw"):
        assert_equal(join(saved(three, part)), join(saved(two, part)))
    for model in saved(three, "model"):
        assert_equal(model, saved(two, "model")[0])
