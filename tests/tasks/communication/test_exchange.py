"""The exchange of gradients: alone, and as an all-reduce of two ranks."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any, cast

import horovod.torch as hvd
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from include.fields.ranks import Communication
from tasks.communication import exchange as exchange_module
from tasks.communication.all_reduce import AllReduce, shared_bytes
from tasks.communication.exchange import Exchange, SingleRank, by_kind, total_norm
from tasks.communication.ranks import gather_rows, sum_over_ranks
from tasks.communication.shared_memory import share_memory
from tasks.encoder.loading import load_pretrained
from tasks.encoder.models import Classifier
from tasks.training.adamw import Setting
from tasks.training.job import Job
from tasks.training.optim import Optimizer
from tests.tasks.launching.jobs import make_job
from tests.tasks.launching.ranks import on_ranks

LOSS_SCALE = 8.0
LAYER = "model.encoder.encoder.layer.1.output.dense.weight"
EMBEDDINGS = "model.encoder.embeddings.word_embeddings.weight"


def model(job: Job) -> Classifier:
    """Of the same weights on every rank."""
    torch.manual_seed(0)
    whole = load_pretrained(job.encoder, job.head)
    words(whole).sparse = True
    return whole


def words(model: Classifier) -> nn.Embedding:
    return cast(nn.Embedding, model.encoder.get_input_embeddings())


def backward(model: Classifier, rank: int, step: int, scale: float = 1.0) -> None:
    """Add a rank's gradient of a step to what is there. On rank 1 nothing reaches the last layer."""
    ids = torch.randint(0, 46, (4, 9), generator=torch.Generator().manual_seed(10 * step + rank))
    stack = cast(Any, model.encoder.encoder)
    layers = stack.layer
    stack.layer = layers[:1] if rank == 1 else layers
    (model(ids, torch.ones_like(ids)).square().sum() * scale).backward()
    stack.layer = layers


def gradients(model: Classifier) -> dict[str, torch.Tensor]:
    """All of them, dense."""
    return {name: p.grad.to_dense().clone() for name, p in model.named_parameters() if p.grad is not None}


def step(exchange: Exchange, model: Classifier, number: int, poison: bool = False) -> dict[str, torch.Tensor]:
    """A step's summed gradients. Rank 1 wants to stop at step 3; with poison, its gradient is not finite."""
    rank = hvd.rank()
    exchange.begin_step(number, LOSS_SCALE, stop=number == 3 and rank == 1)
    backward(model, rank, number, LOSS_SCALE)  # two halves: the first one stays here
    exchange.sync_next_backward()
    backward(model, rank, number, LOSS_SCALE * (math.nan if poison and rank == 1 else 1))
    stop = exchange.synchronize_gradients()
    found = {"norm": torch.tensor(exchange.norm()), "stop": torch.tensor(stop), **gradients(model)}
    found |= {
        f"{name}.piece": one.piece.grad.clone() for name, one in exchange.owned.items() if one.piece.grad is not None
    }
    model.zero_grad()
    if poison:
        exchange.discard_step()
    else:
        exchange.send_parameters()
    return found


def reduce_on_two_ranks(folder: Path) -> None:
    """Uncompressed steps in small buckets; then compressed ones, one of them skipped, with a resumed twin.

    Those in shared memory come last, where one rank lags behind, after an attempt to share more than there is.
    """
    exchange_module.BUCKET_BYTES = 10_000
    job = Job.read(folder / "job.json")
    found: dict[str, torch.Tensor] = {}
    plain = model(job)
    exchange = AllReduce(plain, Communication(), first_compressed=1)
    for number in (1, 2, 3, 5):
        found |= {f"{number}.{name}": value for name, value in step(exchange, plain, number).items()}
    packed = model(job)
    exchange = AllReduce(packed, Communication(compression="onebit"), first_compressed=2)
    counts = [0]
    for number in (1, 2, 3):
        found |= {f"onebit.{number}.{name}": value for name, value in step(exchange, packed, number).items()}
        counts.append(exchange.bytes_received()["matrices"])
    found["bytes"] = torch.tensor(counts).diff()
    assert math.isnan(step(exchange, packed, 4, poison=True)["norm"])
    state = {key: value.clone() for key, value in exchange.state_dict().items()}
    found |= {f"straight.{name}": value for name, value in step(exchange, packed, 5).items()}
    resumed = AllReduce(twin := model(job), Communication(compression="onebit"), first_compressed=2)
    resumed.load_state_dict(state)
    found |= {f"resumed.{name}": value for name, value in step(resumed, twin, 5).items()}
    logging.basicConfig(filename=folder / f"log-{hvd.rank()}")
    assert share_memory(2**50, [2]) is None
    together = model(job)
    host = share_memory(shared_bytes(together, 2, {LAYER}), [2])
    assert host
    exchange = AllReduce(together, None, first_compressed=1, host=host, copies={LAYER})
    for number in (1, 2, 3, 4, 5):
        time.sleep(0.1 * ((number + hvd.rank()) % 2))
        now = step(exchange, together, number, poison=number == 4)
        assert math.isnan(now["norm"]) == (number == 4)
        found |= {f"shared.{number}.{name}": value for name, value in now.items() if number != 4}
    found["shared.bytes"] = torch.tensor(exchange.bytes_received()["matrices"])
    check_copies(exchange, together)
    save_file(found, folder / f"{hvd.rank()}.safetensors")


@torch.no_grad()
def check_copies(exchange: AllReduce, model: Classifier) -> None:
    """They are those of the weights after updates by all ranks, and after a checkpoint has been loaded."""
    exchange.receive_parameters()
    weights = {name: p for name, p in model.named_parameters() if name != EMBEDDINGS}
    assert exchange.copies.keys() == {LAYER}
    before = weights[LAYER].clone()
    sum_over_ranks([0], "read")
    chosen = dict.fromkeys(exchange.parameters, Setting(1.0, 0.0))
    optimizer = Optimizer(exchange.parameters, chosen, frozenset({EMBEDDINGS}), exchange.owned, exchange.copies)
    for one in exchange.owned.values():
        one.piece.grad = torch.ones_like(one.piece)
    optimizer.step(1.0, divisor=1.0)
    exchange.send_parameters()
    exchange.receive_parameters()
    torch.testing.assert_close(weights[LAYER], before - 1)  # the first step is as long as the rate
    assert all(torch.equal(copy, weights[name].bfloat16()) for name, copy in exchange.copies.items())
    sum_over_ranks([0], "checked")
    for values in weights.values():
        values.fill_(3)
    exchange.load_state_dict({})
    assert all(torch.equal(copy, weights[name].bfloat16()) for name, copy in exchange.copies.items())


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("exchange")
    job = make_job(folder)
    job.write(folder / "job.json")
    return job


@pytest.fixture(scope="module")
def found(job: Job) -> list[dict[str, torch.Tensor]]:
    folder = job.encoder.parent
    on_ranks(reduce_on_two_ranks, 2, folder)
    return [load_file(folder / f"{rank}.safetensors") for rank in (0, 1)]


def test_alone_gradients_lose_their_loss_scale_and_nothing_else(job: Job) -> None:
    expected, scaled = model(job), model(job)
    backward(expected, rank=0, step=1)
    exchange = SingleRank(scaled)
    exchange.begin_step(1, LOSS_SCALE, stop=True)
    exchange.sync_next_backward()
    backward(scaled, rank=0, step=1, scale=LOSS_SCALE)
    assert exchange.synchronize_gradients()
    found = gradients(scaled)
    for name, value in gradients(expected).items():
        torch.testing.assert_close(found[name], value)
    norm = torch.cat([value.flatten() for value in found.values()]).norm()
    assert exchange.norm() == pytest.approx(float(norm), rel=1e-5)
    assert set(exchange.bytes_received().values()) == {0}


def test_kinds(job: Job) -> None:
    whole = model(job)
    kinds = by_kind(whole)
    assert list(kinds["embeddings"]) == [EMBEDDINGS]
    assert LAYER in kinds["matrices"]
    assert {"model.classifier.weight", "model.classifier.bias", LAYER.replace("weight", "bias")} < set(kinds["rest"])
    assert sum(len(kind) for kind in kinds.values()) == len(list(whole.parameters()))
    words(whole).sparse = False
    assert by_kind(whole)["embeddings"] == {}


def test_the_norm_counts_a_word_that_is_twice_there_once() -> None:
    table = torch.nn.Parameter(torch.zeros(3, 1))
    table.grad = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([[1.0], [2.0]]), (3, 1)).coalesce()
    assert total_norm({"table": table}) == 3.0


@pytest.mark.parametrize("threads", [1, 2])
def test_the_norm_of_gradients_of_both_formats_does_not_depend_on_threads(threads: int) -> None:
    random = torch.Generator().manual_seed(0)
    sizes = {"one": 5, "long": 40_000, "none": 0, "narrow": 33_001}
    weights = {name: nn.Parameter(torch.zeros(size)) for name, size in sizes.items()}
    weights["narrow"].grad_dtype = None
    for name, weight in weights.items():
        values = torch.randn(weight.shape, generator=random)
        weight.grad = values.bfloat16() if name == "narrow" else values
    used = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        norm = float(total_norm(weights))
    finally:
        torch.set_num_threads(used)
    exact = torch.cat([weight.grad.double() for weight in weights.values() if weight.grad is not None]).norm()
    assert norm == pytest.approx(float(exact), rel=1e-6)
    assert norm == float(total_norm(weights))
    weights["narrow"].grad = torch.full_like(weights["narrow"], math.nan, dtype=torch.bfloat16)
    assert math.isnan(total_norm(weights))


def test_two_ranks_have_the_sum_of_what_one_process_computes(job: Job, found: list[dict[str, torch.Tensor]]) -> None:
    for number in (1, 2, 3):
        whole = model(job)
        for rank in (0, 0, 1, 1):
            backward(whole, rank, number)
        for name, value in gradients(whole).items():
            for own in found:
                torch.testing.assert_close(own[f"{number}.{name}"], value, rtol=1e-4, atol=1e-5)


def test_ranks_agree_to_the_bit_and_stop_together(found: list[dict[str, torch.Tensor]]) -> None:
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        assert name.endswith(".piece") or torch.equal(value, found[1][name]), name  # each rank has its own pieces
    assert [bool(found[0][f"{number}.stop"]) for number in (1, 2, 3)] == [False, False, True]


def test_compression_starts_after_the_warm_up(found: list[dict[str, torch.Tensor]]) -> None:
    first, *others = found[0]["bytes"].tolist()
    assert first == 4 * sum(found[0][f"1.{name}"].numel() for name in matrices(found))
    assert others[0] == others[1] < first / 20
    assert all(torch.equal(found[0][f"1.{name}"], found[0][f"onebit.1.{name}"]) for name in matrices(found))
    assert not torch.equal(found[0][f"2.{LAYER}"], found[0][f"onebit.2.{LAYER}"])
    assert torch.equal(found[0]["2.model.classifier.weight"], found[0]["onebit.2.model.classifier.weight"])


def test_a_checkpoint_after_a_skipped_step_goes_on_to_the_bit(found: list[dict[str, torch.Tensor]]) -> None:
    for name, value in found[0].items():
        if name.startswith("straight."):
            assert torch.equal(value, found[0][name.replace("straight", "resumed")]), name


def test_in_shared_memory_the_sums_are_the_same(found: list[dict[str, torch.Tensor]]) -> None:
    for number in (1, 2, 3, 5):
        assert found[0][f"shared.{number}.norm"] == found[1][f"shared.{number}.norm"]
        torch.testing.assert_close(found[0][f"shared.{number}.norm"], found[0][f"{number}.norm"])
        for name in ("stop", EMBEDDINGS):
            assert all(torch.equal(own[f"shared.{number}.{name}"], own[f"{number}.{name}"]) for own in found)
        for name in (LAYER, "model.classifier.bias", *matrices(found)):
            summed = torch.cat([own[f"shared.{number}.{name}.piece"] for own in found])
            assert torch.equal(summed, found[0][f"{number}.{name}"].flatten()), name
    assert all(torch.equal(own["shared.bytes"], 5 * own["bytes"][0]) for own in found)  # of five steps


@pytest.mark.usefixtures("found")
def test_what_does_not_fit_into_shared_memory_is_said_once(job: Job) -> None:
    first, second = ((job.encoder.parent / f"log-{rank}").read_text() for rank in (0, 1))
    assert "the 2 ranks of this host cannot share 1125899907 MB of /dev/shm: [Errno 28] No space left" in first
    assert second == ""


def test_sums_and_rows(horovod: None) -> None:
    assert sum_over_ranks([1.5, 2e300], "sums") == [1.5, 2e300]
    assert gather_rows(torch.zeros(0, 3), "rows").shape == (0, 3)


def matrices(found: list[dict[str, torch.Tensor]]) -> list[str]:
    names = [name.removeprefix("1.") for name, value in found[0].items() if name.startswith("1.") and value.ndim > 1]
    return [name for name in names if name.startswith("model.encoder.") and "word_embeddings" not in name]
