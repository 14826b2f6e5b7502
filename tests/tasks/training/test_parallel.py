"""A model that is divided among ranks has the gradients of a whole one, and goes on where another has stopped."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from horovod.common.exceptions import HorovodInternalError
from safetensors.torch import load_file
from tokenizers import Tokenizer

from include.fields.ranks import Parallel
from include.stages import BadInput
from tasks.communication import shared_memory
from tasks.communication.layout import Layout, Mesh, flat
from tasks.communication.state import State
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import load_pretrained, load_trained
from tasks.encoder.models import predict_logits
from tasks.launching.launch import launch
from tasks.launching.rank import train
from tasks.training.checkpoint import load_pieces, save_pieces
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tasks.training.loop import Trainer
from tasks.training.parallel.divide import disconnect, lost_ranks_told
from tasks.training.parallel.pipeline import check_pipeline
from tasks.training.parallel.tensor import check_tensor
from tests.tasks.encoder.families import family
from tests.tasks.encoder.samples import reviews, write_split
from tests.tasks.launching.jobs import lines, losses, make_job
from tests.tasks.launching.ranks import on_ranks

PLAIN: dict[str, Any] = {
    "sparse_embeddings": False,
    "fused_layers": False,
    "patience": 0,
    "evaluations": 3,  # the first one after STOP steps
    "epochs": 0.75,
}
MESHES: dict[str, dict[str, Any]] = {
    "copies": {}, "tensor": {"tensor": 2}, "pipeline": {"pipeline": 2, "micro_batches": 2}, "shard": {"shard": 2},
}  # fmt: skip
#: A training that has stopped on the first of two meshes goes on on the second; "one" is a single rank.
CHANGES = (*pairwise([*MESHES, "copies"]), ("one", "tensor"), ("one", "pipeline"), ("one", "shard"))
#: One with more micro-batches than a batch has rows, too.
TWO = {**MESHES, "many micro-batches": {"pipeline": 2, "micro_batches": 12}}
FOUR: dict[str, dict[str, Any]] = {
    "copies of tensor": {"tensor": 2}, "copies of pipeline": {"pipeline": 2, "micro_batches": 2},
    "copies of shard": {"shard": 2}, "shard and tensor": {"shard": 2, "tensor": 2},
}  # fmt: skip
FAMILIES = {"bert": list(TWO), "distilbert": ["tensor", "pipeline"], "mpnet": ["tensor"]}
STOP = 3


def job_of(root: Path, parallel: dict[str, Any], ranks: int, pooling: str = "native", **training: Any) -> Job:
    job = make_job(root, ranks=ranks, **{**PLAIN, **training})
    experiment = job.experiment
    changes = {
        "parallel": Parallel(**parallel),
        "model": experiment.model.model_copy(update={"pooling": pooling}),
        "runtime": experiment.runtime.model_copy(update={"checkpoint_steps": 0}),
    }
    return dataclasses.replace(job, experiment=experiment.model_copy(update=changes))


def make_family(root: Path, kind: str) -> None:
    words = Tokenizer.from_file(str(family(root / "encoder", kind) / "tokenizer.json"))
    write_split(root / "data" / "train", *reviews(60, seed=1), words=words)
    write_split(root / "data" / "dev", *reviews(30, seed=2), words=words)


def first_step(trainer: Trainer) -> dict[str, Any]:
    """Run the passes of the first batch, and return what is measured of it."""
    batch = next(iter(trainer.sampler))
    trainer.exchange.begin_step(1, 1.0, stop=False)
    trainer.compute_gradients(batch)
    trainer.exchange.synchronize_gradients()
    trainer.meter.end_step(batch, trainer.exchange.norm(), 0.0)
    figures = {**trainer.meter.read(), **trainer.meter.totals.state_dict()}
    return {**figures, "received": trainer.bytes_received(batch), "longest": trainer.inputs(batch).input_ids.shape[1]}


def leave_first_step(job: Job, folder: Path) -> None:
    """Leave this rank's gradients of the first batch, and what rank 0 has measured of it."""
    trainer = build_trainer(job, lambda: False, folder)
    figures = first_step(trainer)
    gradients = {name: one.grad for name, one in trainer.exchange.parameters.items() if one.grad is not None}
    written = [name for name in gradients if trainer.state.writes(f"model.{name}")]
    save_pieces({name: gradients[name] for name in written}, trainer.state.places.get, folder / f"{hvd.rank()}.part")
    if hvd.rank() == 0:
        (folder / "figures.json").write_text(json.dumps(figures))


def on_two(root: Path) -> None:
    """On every rank, and for every family and mesh. In shared memory, gradients would be in pieces."""
    shared_memory.FOLDER = "/dev/null"  # no folder, and nobody can make it one
    for kind, meshes in FAMILIES.items():
        for mesh in meshes:
            leave_first_step(Job.read(root / kind / f"{mesh}.json"), root / kind / mesh)
    stop_and_go_on(root)
    disconnect()


def stop_and_go_on(root: Path) -> None:
    """Train on every mesh until step 3, and to the end on the next one."""
    for mesh in MESHES:
        asked = iter([False] * (STOP - 1) + [True] * 99)
        build_trainer(Job.read(root / "bert" / f"stopped-{mesh}.json"), lambda asked=asked: next(asked), root).run()  # type: ignore[misc]
    for before, after in CHANGES:
        job = Job.read(root / "bert" / f"{before}-{after}.json")
        if hvd.rank() == 0:
            stopped = Job.read(root / "bert" / f"stopped-{before}.json")
            shutil.copytree(stopped.output, job.output, dirs_exist_ok=True)
        hvd.barrier()
        build_trainer(job, lambda: False, root).run()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("parallel")
    for kind, meshes in FAMILIES.items():
        make_family(root / kind, kind)
        for mesh in meshes:
            (root / kind / mesh).mkdir()
            job_of(root / kind, TWO[mesh], 2).write(root / kind / f"{mesh}.json")
    bert = root / "bert"
    for mesh in MESHES:
        job_of(bert, MESHES[mesh], 2).write(bert / f"stopped-{mesh}.json")
    stopped = job_of(bert, {}, 1)
    stopped.write(bert / "stopped-one.json")
    asked = iter([False] * (STOP - 1) + [True])
    build_trainer(stopped, lambda: next(asked)).run()
    for before, after in CHANGES:
        job_of(bert, MESHES[after], 2).write(bert / f"{before}-{after}.json")
    on_ranks(on_two, 2, root)
    return root


def with_process_sets(function: Callable[[Path], None], ranks: int, root: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
        on_ranks(function, ranks, root)


def whole_step(root: Path, kind: str) -> tuple[dict[str, Any], State]:
    """The figures and gradients of the first batch in a single process."""
    trainer = build_trainer(job_of(root / kind, {}, 1), lambda: False)
    figures, named = first_step(trainer), trainer.model.named_parameters()
    return figures, {name: one.grad for name, one in named if one.grad is not None}


def figures_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "figures.json").read_text())
    return found


def assert_same(folder: Path, figures: dict[str, Any], gradients: State) -> None:
    found = figures_of(folder)
    for name in ("loss", "grad_norm", "tokens", "rows"):
        assert found[name] == pytest.approx(figures[name], rel=1e-5), (folder.name, name)
    pieces = load_pieces(sorted(folder.glob("*.part")), None, torch.device("cpu"))
    assert pieces.keys() >= gradients.keys(), folder.name
    for name, gradient in gradients.items():
        torch.testing.assert_close(pieces[name], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_mesh_has_the_loss_and_the_gradients_of_one_rank(root: Path, kind: str) -> None:
    figures, gradients = whole_step(root, kind)
    for mesh in FAMILIES[kind]:
        assert_same(root / kind / mesh, figures, gradients)


@pytest.fixture(scope="module")
def four(root: Path) -> Path:
    """The folder in which four ranks have left the first step on every mesh."""
    folder = root / "bert"
    for mesh, parallel in FOUR.items():
        (folder / mesh).mkdir()
        job_of(folder, parallel, 4).write(folder / f"{mesh}.json")
    with_process_sets(on_four, 4, folder)
    return folder


def on_four(folder: Path) -> None:
    """On every rank."""
    for mesh in FOUR:
        leave_first_step(Job.read(folder / f"{mesh}.json"), folder / mesh)
    disconnect()


def test_so_has_a_mesh_of_two_axes(root: Path, four: Path) -> None:
    figures, gradients = whole_step(root, "bert")
    for mesh in FOUR:
        assert_same(four / mesh, figures, gradients)


def test_ranks_with_the_same_rows_count_them_once(root: Path, four: Path) -> None:
    whole, _ = whole_step(root, "bert")
    found = {mesh: figures_of(four / mesh) for mesh in (*TWO, *FOUR)}
    places = {mesh: figures["places"] for mesh, figures in found.items()}
    assert places["tensor"] == whole["places"]
    assert places["copies of tensor"] == places["shard and tensor"] == places["copies"] == places["shard"]
    length = -(-whole["longest"] // 8) * 8
    assert (whole["rows"], places["pipeline"], places["many micro-batches"]) == (7, 8 * length, 12 * length)


def test_bytes_are_those_of_the_parts_that_a_rank_has(root: Path, four: Path) -> None:
    received = {mesh: figures_of(four / mesh)["received"] for mesh in (*TWO, *FOUR)}
    assert {received[mesh]["dense"] for mesh in (*TWO, "shard and tensor") if mesh != "copies"} == {0}
    for mesh in ("copies of tensor", "copies of pipeline", "copies of shard"):
        assert 0 < received[mesh]["all"] == received[mesh]["dense"] < received["copies"]["dense"]


def test_it_goes_on_on_any_mesh(root: Path) -> None:
    whole = job_of(root / "bert", {}, 1)
    train(whole, root / "never")
    expected, dev = losses(whole.output), [line for line in lines(whole.output) if "dev_loss" in line]
    weights = load_file(whole.output / "model" / "model.safetensors")
    for before, after in CHANGES:
        job = Job.read(root / "bert" / f"{before}-{after}.json")
        np.testing.assert_allclose(losses(job.output), expected, rtol=1e-4, err_msg=f"{before} {after}")
        found = [line for line in lines(job.output) if "dev_loss" in line]
        assert [line["accuracy"] for line in found] == [line["accuracy"] for line in dev]
        saved = load_file(job.output / "model" / "model.safetensors")
        assert saved.keys() == weights.keys()
        for name, values in weights.items():
            torch.testing.assert_close(saved[name], values, rtol=1e-3, atol=1e-5)
        assert not list(job.output.glob(".*"))


@pytest.mark.long
def test_copies_of_stages_of_divided_layers_are_equal_too(root: Path) -> None:
    """2 x 2 x 2: eight ranks."""
    for kind in ("bert", "distilbert"):
        (root / kind / "eight").mkdir()
        job_of(root / kind, {"tensor": 2, "pipeline": 2, "micro_batches": 2}, 8).write(root / kind / "eight.json")
    with_process_sets(on_eight, 8, root)
    for kind in ("bert", "distilbert"):
        assert_same(root / kind / "eight", *whole_step(root, kind))


def on_eight(root: Path) -> None:
    """On every rank."""
    for kind in ("bert", "distilbert"):
        leave_first_step(Job.read(root / kind / "eight.json"), root / kind / "eight")
    disconnect()


@pytest.mark.long
def test_a_launched_training_leaves_a_whole_model_and_nothing_else(root: Path) -> None:
    """In bf16, with activations that are computed again; auto is as many ranks as divide the model."""
    values: dict[str, Any] = {"precision": "bf16", "activation_checkpointing": True}
    whole, halves = job_of(root / "bert", {}, 1, **values), job_of(root / "bert", {"tensor": 2}, 2, **values)
    train(whole, root / "never")
    auto = halves.experiment.training.model_copy(update={"ranks": "auto"})
    launch(dataclasses.replace(halves, experiment=halves.experiment.model_copy(update={"training": auto})))
    np.testing.assert_allclose(losses(halves.output), losses(whole.output), rtol=2e-2)
    left = {path.name for path in halves.output.iterdir()}
    assert left == {"lock", "metrics.jsonl", "model", "training.json"}
    summary = json.loads((halves.output / "training.json").read_text())
    assert (summary["ranks"], summary["mesh"]) == (2, {"data": 1, "pipeline": 1, "shard": 1, "tensor": 2})
    table = TokenTable.open(halves.data / "dev")
    logits = predict_logits(load_trained(halves.output / "model"), table)
    assert np.isfinite(logits).all()


def test_an_encoder_that_cannot_be_divided_is_refused_with_a_remedy(tmp_path: Path) -> None:
    job = make_job(tmp_path, **PLAIN)
    model = load_pretrained(job.encoder, job.head)
    with pytest.raises(
        BadInput, match=r"is 3, but the encoder has 2 attention heads, .*: write parallel.tensor: 2, or"
    ):
        check_tensor(model, 3)
    with pytest.raises(BadInput, match=r"is 4, but the encoder has 2 layers, .*: write parallel.pipeline: 2, or"):
        check_pipeline(model, 4)
    cast(Any, model.encoder.config).model_type = "deberta-v2"
    for check in (check_tensor, check_pipeline):
        with pytest.raises(BadInput, match=r"the encoder \(deberta-v2\).*, and parallel.shard to save memory"):
            check(model, 2)


def test_a_place_on_the_mesh() -> None:
    layout = Layout(7, Mesh(2, 2, 1, 2), Mesh(1, 1, 0, 1))
    assert (layout.world, layout.rows, layout.row_parts, layout.random) == (8, 1, 2, 3)
    assert layout.divided and layout.is_last_stage and not layout.counts and not layout.leads
    shards = Layout(2, Mesh(shard=3), Mesh(0, 0, 2, 0))
    assert shards.share(["a", "b", "c", "d"]) == ["c", "b"]
    assert flat().share(["a", "b"]) == ["a", "b"]


def test_a_lost_rank_is_told_from_other_errors_also_where_torch_wraps_it() -> None:
    lost, wrong = (
        RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection reset by peer"),
        RuntimeError("shapes differ"),
    )
    for cause, raised in ((lost, HorovodInternalError), (wrong, RuntimeError)):
        with pytest.raises(raised) as found, lost_ranks_told():
            raise RuntimeError("[Stage 1] failed to run forward") from cause
        assert found.type is raised
