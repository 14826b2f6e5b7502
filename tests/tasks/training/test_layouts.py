"""A training that was stopped goes on with other ranks on other hosts, with every strategy."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.communication import hosts as communication_hosts
from tasks.communication.all_reduce import AllReduce
from tasks.communication.exchange import SingleRank
from tasks.communication.hosts import Hosts
from tasks.communication.layout import Layout, Mesh
from tasks.communication.ranks import ranks_by_host
from tasks.communication.state import State
from tasks.encoder.loading import load_pretrained
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tests.tasks.communication.compression.samples import KINDS
from tests.tasks.launching.jobs import losses, make_job
from tests.tasks.launching.ranks import on_ranks

COMMUNICATIONS: dict[str, dict[str, Any]] = {
    "all-reduce": {"compression": "onebit", "compression_start": 0},
    "hierarchical": {
        "strategy": "hierarchical", "compression": "powersgd", "powersgd_rank": 1, "compression_start": 0,
    },
    "stale servers": {"strategy": "parameter-server", "staleness": 1},
}  # fmt: skip
#: Ranks on each host: 1+1 is one on each of two. Every layout goes on with what the one named here has left.
LAYOUTS = {"1": "none", "1+1": "1", "1 again": "1+1"}
CHANGES = [("1", "1+1"), ("1+1", "1 again")]
STOP, STEPS = 3, 5


def ranks(layout: str) -> list[int]:
    return [int(count) for count in layout.removesuffix(" again").split("+")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Below it, <before>-<after>/<communication>/ holds the jobs, and what the exchange and the log held."""
    root = tmp_path_factory.mktemp("layouts")
    for layout, communication in product(LAYOUTS, COMMUNICATIONS):
        for before in {"none", LAYOUTS[layout]}:
            folder = root / f"{before}-{layout}" / communication
            # A rank that others have left alone compresses as before, one that was always alone does not.
            asked = 2 if before == "1+1" else sum(ranks(layout))
            job = make_job(
                root, COMMUNICATIONS[communication], ranks=asked, batch_size=6, epochs=0.5, evaluations=1, patience=0
            )
            folder.mkdir(parents=True)
            if before == "none":
                (folder / "training").mkdir()
            dataclasses.replace(job, checkpoints=folder / "training").write(folder / "job.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
        for layout in LAYOUTS:
            if sum(ranks(layout)) > 1:
                on_ranks(stop_and_go_on, ranks(layout), root / layout)
            else:
                hvd.init()
                stop_and_go_on(root / layout)
                hvd.shutdown()
    return root


def stop_and_go_on(folder: Path) -> None:
    """On every rank of the layout that the folder is named for."""
    hosts = Hosts(ranks_by_host())  # for all trainings of this process: Horovod refuses sets of the same ranks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(communication_hosts, "Hosts", lambda _: hosts)
        for communication in COMMUNICATIONS:
            train_as(communication, folder)


def train_as(communication: str, folder: Path) -> None:
    """Go on with what the layout before has left; and stop a training of this layout's own, for the next one."""
    before, alone = LAYOUTS[folder.name], folder.with_name(f"none-{folder.name}") / communication
    if before != "none":
        here = folder.with_name(f"{before}-{folder.name}") / communication
        if hvd.rank() == 0:
            shutil.copytree(folder.with_name(f"none-{before}") / communication / "training", here / "training")
        hvd.barrier()
        go_on(here)
    if folder.name in LAYOUTS.values():
        asked = iter([False] * (STOP - 1) + [True])
        build_trainer(Job.read(alone / "job.json"), lambda: next(asked)).run()


def go_on(folder: Path) -> None:
    """Train to the end, and keep the warnings and what the exchange had when the first step began."""
    log, loaded = logging.FileHandler(folder / f"log-{hvd.rank()}"), folder / f"exchange-{hvd.rank()}.safetensors"
    logging.getLogger().addHandler(log)

    def keep() -> bool:
        if not loaded.exists():
            save_file(trainer.exchange.state_dict(), loaded)
        return False

    trainer = build_trainer(Job.read(folder / "job.json"), stopping=keep)
    trainer.run()
    logging.getLogger().removeHandler(log)
    log.close()


def unsent(files: Iterator[Path]) -> State:
    """The sums over the ranks of what each could not send, by bucket."""
    total: State = {}
    for state in map(load_file, files):
        for key, value in state.items():
            if key.endswith(".residual"):
                total[key.removeprefix("exchange.")] = total.get(key.removeprefix("exchange."), 0) + value
    return total


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_it_trains_to_the_end_and_loses_no_more_than_it_says(root: Path, before: str, after: str) -> None:
    for communication in COMMUNICATIONS:
        folder = root / f"{before}-{after}" / communication
        assert len(losses(Job.read(folder / "job.json").output)) == STEPS, communication
        had = unsent((root / f"none-{before}" / communication).glob("training/step-*/rank-*.safetensors"))
        has, log = unsent(folder.glob("exchange-*")), (folder / "log-0").read_text()
        if had.keys() == has.keys():
            for key, value in had.items():
                torch.testing.assert_close(has[key], value)
                assert value.any(), communication  # or there would be nothing to lose
        elif had:  # one host has nobody to compress for
            assert communication == "hierarchical"
            assert "is dropped: matrices.0." in log, communication
        else:
            assert "starts at zero: matrices.0." in log, communication
            assert not any(value.any() for value in has.values()), communication
        assert f"the layout was (ranks: {sum(ranks(before))}, hosts: {len(ranks(before))}) and is now (" in log
        assert all((folder / f"log-{rank}").read_text() == "" for rank in range(1, sum(ranks(after))))


@pytest.mark.usefixtures("horovod")
@pytest.mark.parametrize("kind", KINDS)
def test_every_compressor_takes_over_what_there_is(tmp_path: Path, kind: str) -> None:
    job = make_job(tmp_path, {"compression": kind})
    exchange = AllReduce(load_pretrained(job.encoder, job.head), job.experiment.communication, 1)
    state = {key: torch.ones_like(value) for key, value in exchange.state_dict().items()}
    expected = {key: 3 * value if key.endswith(".residual") else value for key, value in state.items()}
    exchange.load_state_dict(exchange.redistribute([state] * 3))
    torch.testing.assert_close(exchange.state_dict(), expected)
    exchange.load_state_dict(exchange.redistribute([{}]))
    assert exchange.state_dict().keys() == state.keys()


@pytest.mark.usefixtures("horovod")
def test_of_two_ranks_each_leaves_its_residual_to_one_of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(tmp_path, {"compression": "powersgd", "powersgd_rank": 1})
    exchange = AllReduce(load_pretrained(job.encoder, job.head), job.experiment.communication, 1)
    states = [
        {key: torch.full_like(value, fill) for key, value in exchange.state_dict().items()} for fill in (1.0, 2.0)
    ]
    for rank, residual in enumerate((1.0, 2.0, 0.0)):
        monkeypatch.setattr(exchange, "_layout", Layout(rank, Mesh(data=3), Mesh(rank, 0, 0, 0)))
        for key, value in exchange.redistribute(states).items():
            assert torch.all(value == (residual if key.endswith(".residual") else 1.0)), key


@pytest.mark.usefixtures("horovod")
def test_a_training_that_compresses_nothing_any_more_says_what_it_drops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(tmp_path)
    exchange = SingleRank(load_pretrained(job.encoder, job.head))
    assert exchange.redistribute([{"matrices.0.residual": torch.ones(1)}]) == {}
    assert "is dropped: matrices.0.residual" in caplog.text
