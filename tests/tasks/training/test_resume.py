"""A training that was stopped, however it was, goes on as if it had not been."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from include.artifacts import MANIFEST, inventory, write_json
from include.stages import BadInput, Transient
from tasks.communication.all_reduce import AllReduce
from tasks.communication.shared_memory import FOLDER
from tasks.encoder.loading import load_pretrained
from tasks.launching import launch as launching
from tasks.launching.launch import ROOT, Paused, launch
from tasks.launching.rank import train
from tasks.training.factory import build_trainer
from tasks.training.job import Job, checkpoints
from tasks.training.training_state import RandomState
from tests.tasks.encoder.samples import reviews, tiny_encoder, write_split
from tests.tasks.launching.jobs import lines, make_job
from tests.tasks.launching.ranks import is_rank, on_ranks

COMMUNICATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "bf16": {},  # ranks that share memory keep copies of the weights there
    "powersgd": {"compression": "powersgd", "powersgd_rank": 1},
    "server": {"strategy": "parameter-server", "server_momentum": 0.9},
    "stale": {"strategy": "parameter-server", "staleness": 1},
}
VARYING = ("time", "rows_per_second", "memory", "bytes_")  # of a line in metrics.jsonl: servers send parameters again


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an encoder that has dropout, so that random numbers matter."""
    root = tmp_path_factory.mktemp("resumed")
    tiny_encoder(root / "encoder", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    write_split(root / "data" / "train", *reviews(60, seed=1))
    write_split(root / "data" / "dev", *reviews(30, seed=2))
    return root


def resumable(root: Path, name: str, runtime: dict[str, Any], communication: str = "none", **training: Any) -> Job:
    """A job whose checkpoints are in root/name."""
    job = make_job(root, COMMUNICATIONS[communication], **training)
    values = {"runtime": job.experiment.runtime.model_copy(update=runtime)}
    return dataclasses.replace(job, experiment=job.experiment.model_copy(update=values), checkpoints=root / name)


def record(output: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what differs from run to run."""
    return [{key: value for key, value in line.items() if not key.startswith(VARYING)} for line in lines(output)]


def weights(output: Path) -> list[bytes]:
    return [(output / "model" / name).read_bytes() for name in ("model.safetensors", "config.json")]


def same(one: Path, other: Path) -> bool:
    return record(one) == record(other) and weights(one) == weights(other)


# Killed, on one rank


def test_kills_at_any_moment_change_nothing(root: Path) -> None:
    whole = resumable(root, "whole", {"checkpoint_steps": 3}, epochs=1)
    train(whole, root / "never")
    killed = resumable(root, "killed", {"checkpoint_steps": 3}, epochs=1)
    # A checkpoint with its best model takes some 15 calls, an evaluation fewer: these fall before, in and after them.
    kills: list[dict[str, float]] = [{"calls": calls} for calls in (2, 5, 8, 14, 19, 25)]
    kills.append({"seconds": random.Random(1).uniform(0.5, 1)})
    attempts = after(killed, kills)
    assert [attempt["code"] for attempt in attempts[:6]] == [-9] * 6
    assert attempts[-1]["code"] == 0
    assert any(attempt["began"] for attempt in attempts)
    assert any(name.startswith(".step-") for attempt in attempts for name in attempt["left"])
    assert same(killed.output, whole.output)


def after(job: Job, kills: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Train with these kills (see kills.py) and then to the end; how each attempt ended."""
    plan = job.output / "plan.json"
    job.write(job.output / "job.json")
    write_json(plan, {"job": str(job.output / "job.json"), "kills": kills})
    command = [sys.executable, "-m", "tests.tasks.training.kills", str(plan)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as here (conftest.py): sums depend on it in the last bit
    subprocess.run(command, cwd=ROOT, env=one_thread, check=True, timeout=300)
    done: list[dict[str, Any]] = json.loads(plan.with_suffix(".done").read_text())
    return done


# Paused


def test_pauses_change_nothing(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = resumable(root, "never paused", {"checkpoint_steps": 0})
    launch(whole)
    paused = resumable(root, "paused", {"checkpoint_steps": 0})
    found = []
    for share in (1 / 9, 1 / 9, 1 / 3):  # a process that was killed after the checkpoint is asked for it again
        with pytest.raises(Paused, match="has paused after step") as pause:
            launch(dataclasses.replace(paused, pause=share))
        assert list(checkpoints(paused.folder))[-1] == pause.value.step
        found.append((pause.value.step, pause.value.metrics["accuracy"]))
    assert [step for step, _ in found] == [2, 2, 5] and found[0] == found[1]
    launch(paused)
    assert same(paused.output, whole.output)
    one, other = (json.loads((job.output / "training.json").read_text()) for job in (paused, whole))
    assert one.keys() == other.keys()
    assert all(one[name] == other[name] for name in ("best", "best_step", "steps", "epochs", "bytes"))


# Stopped, on two ranks


def test_two_ranks_go_on_to_the_bit_with_any_communication(root: Path, two: Path) -> None:
    for communication in COMMUNICATIONS:
        whole, stopped = (Job.read(two / f"{communication}-{name}.json") for name in ("whole", "stopped"))
        assert list(checkpoints(stopped.folder)) == [4], communication
        assert same(stopped.output, whole.output), communication
        assert [line["step"] for line in record(whole.output)] == [1, 2, 3, 4, 4, 5, 6, 6]


@pytest.fixture(scope="module")
def two(root: Path) -> Path:
    """Two ranks have trained by the jobs in this folder: all through, and with a stop after step 4."""
    folder = root / "two"
    folder.mkdir()
    for communication in COMMUNICATIONS:
        for name in ("whole", "stopped"):
            folder_name = f"two-{communication}-{name}"
            values = {"ranks": 2, "epochs": 0.75, "precision": "bf16" if communication == "bf16" else "fp32"}
            job = resumable(root, folder_name, {"checkpoint_steps": 0}, communication, **values)
            job.folder.mkdir()
            job.write(folder / f"{communication}-{name}.json")
    on_ranks(stop_and_go_on, 2, folder)
    return folder


def stop_and_go_on(folder: Path) -> None:
    """On every rank: train through; train until rank 1 is asked to stop, which is when its dev split is due; go on."""
    for communication in COMMUNICATIONS:
        whole, stopped = (Job.read(folder / f"{communication}-{name}.json") for name in ("whole", "stopped"))
        build_trainer(whole, lambda: False).run()
        asked = iter([False] * 3 + [True])
        build_trainer(stopped, lambda asked=asked: next(asked) and hvd.rank() == 1).run()  # type: ignore[misc]
        build_trainer(stopped, lambda: False).run()


@pytest.mark.parametrize("communication", ["powersgd", "server"])
def test_another_number_of_ranks_goes_on_with_a_warning(
    root: Path, two: Path, communication: str, caplog: pytest.LogCaptureFixture
) -> None:
    written = Job.read(two / f"{communication}-stopped.json")
    alone = resumable(root, f"alone-{communication}", {"checkpoint_steps": 0}, communication, ranks=2, epochs=0.75)
    shutil.copytree(written.folder, alone.folder)
    with caplog.at_level(logging.INFO):
        train(alone, root / "never")
    assert "continuing from the checkpoint of step 4" in caplog.text
    assert "the layout was (ranks: 2, hosts: 1) and is now (ranks: 1, hosts: 1)" in caplog.text
    assert record(alone.output)[:4] == record(written.output)[:4]
    assert [line["step"] for line in record(alone.output)] == [1, 2, 3, 4, 4, 5, 6, 6]
    before, now = (line["loss"] for line in (record(written.output)[5], record(alone.output)[5]))
    assert now == pytest.approx(before, abs=0.1)  # other dropout


def test_what_compressors_lack_on_the_same_ranks_is_an_error_and_never_silently_zero(root: Path) -> None:
    job = resumable(root, "lacking", {"checkpoint_steps": 0}, "powersgd", ranks=2, epochs=0.75)
    train(job, root)  # one rank that others have left; root exists, so it is asked to stop at once
    folder = job.folder / "step-1"
    tensors = load_file(folder / "rank-0.safetensors")
    kept = {name: values for name, values in tensors.items() if "residual" not in name}
    assert len(kept) < len(tensors)
    rewrite(folder, "rank-0.safetensors", kept)
    with pytest.raises(BadInput, match=r"step 1 in .*lacking lacks '.*residual': remove that checkpoint"):
        train(job, root / "never")


def rewrite(folder: Path, name: str, tensors: dict[str, torch.Tensor]) -> None:
    """Write other tensors into a file of a checkpoint."""
    save_file(tensors, folder / name)
    (folder / MANIFEST).unlink()
    write_json(folder / MANIFEST, {"files": inventory(folder)})


def test_a_gpu_goes_on_where_a_cpu_was_with_random_numbers_of_its_own_and_the_reverse(root: Path) -> None:
    job = resumable(root, "other device", {"checkpoint_steps": 0}, epochs=0.75)
    train(job, root)
    of_cpu = load_file(job.folder / "step-1" / "rank-0.safetensors")
    random = {name.removeprefix("random."): values for name, values in of_cpu.items() if name.startswith("random.")}
    before = torch.get_rng_state()
    RandomState(torch.device("cuda"), 1, 0).load_state_dict(random)
    assert torch.equal(torch.get_rng_state(), before)
    for of_gpu in (False, True):
        more = {"random.cuda": torch.zeros(16, dtype=torch.uint8)} if of_gpu else {}
        rewrite(job.folder / "step-1", "rank-0.safetensors", {**of_cpu, **more})
        trainer = build_trainer(job, lambda: False)
        assert trainer.resume() == 1
        drawn = torch.get_rng_state()
        assert torch.equal(drawn, random["cpu"]) != of_gpu
        trainer.state.random.reseed(1)
        assert torch.equal(drawn, torch.get_rng_state()) == of_gpu


def test_no_residual_is_lost_when_ranks_are(two: Path) -> None:
    """Rank r of M takes over the sum of what ranks r, r + M, ... could not send, and the rest as it is."""
    job = Job.read(two / "powersgd-stopped.json")
    first, second = (
        {name.removeprefix("exchange."): values for name, values in load_file(file).items() if "matrices" in name}
        for file in sorted((job.folder / "step-4").glob("rank-*"))
    )
    hvd.init()
    try:
        merged = AllReduce(load_pretrained(job.encoder, job.head), job.experiment.communication, 1).redistribute(
            [first, second]
        )
    finally:
        hvd.shutdown()
    assert set(merged) == set(first)
    for name, values in merged.items():
        is_residual = name.endswith("residual")
        assert torch.equal(values, first[name] + second[name] if is_residual else first[name])
        assert not torch.equal(first[name], second[name]) if is_residual else torch.equal(first[name], second[name])


# A rank that is lost


@pytest.mark.parametrize(("policy", "ranks"), [pytest.param("restart", 2, marks=pytest.mark.long), ("shrink", 1)])
def test_a_lost_rank_does_not_end_the_training(
    root: Path, policy: str, ranks: int, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = {"checkpoint_steps": 8, "lost_rank": policy}
    job = resumable(root, policy, runtime, epochs=8, evaluations=1, ranks=2, patience=0)
    with caplog.at_level(logging.WARNING):
        shared = kill_a_rank_of(job, after_step=8)
    assert shared and not any(file.exists() for file in shared)
    summary = json.loads((job.output / "training.json").read_text())
    assert (summary["steps"], summary["ranks"]) == (64, ranks)
    assert summary["bytes"]["dense"] > summary["bytes"]["matrices"] > 0
    assert re.search(rf"training starts again from step \d+, ranks: {ranks}", caplog.text)
    assert [line["step"] for line in record(job.output) if "loss" in line] == list(range(1, 65))


@pytest.mark.long
def test_a_rank_lost_before_the_first_checkpoint_costs_the_steps_so_far(root: Path) -> None:
    runtime = {"checkpoint_steps": 0, "lost_rank": "restart"}
    job = resumable(root, "no checkpoint", runtime, epochs=4, evaluations=1, ranks=2, patience=0)
    kill_a_rank_of(job, after_step=0)
    assert [line["step"] for line in record(job.output) if "loss" in line] == list(range(1, 33))


@pytest.mark.parametrize(("policy", "starts"), [("fail", 1), ("restart", launching.FRUITLESS)])
def test_a_training_that_gets_nowhere_is_given_up(
    root: Path, policy: str, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = resumable(root, f"nowhere {policy}", {"lost_rank": policy}, ranks=2)
    started: list[int] = []

    def lose(job: Job, folder: Path, ranks: int) -> None:
        started.append(ranks)
        raise launching.LostRank("rank 1 was lost")

    monkeypatch.setattr(launching, "_train", lose)
    with pytest.raises(Transient, match="rank 1 was lost: run the stage again"):
        launch(job)
    assert started == [2] * starts


def kill_a_rank_of(job: Job, after_step: int) -> list[Path]:
    """Launch the job, and kill its rank 1 when there is a checkpoint of the step; 0: when it has begun.

    Returns the files in /dev/shm that the rank had mapped.
    """
    shared: list[Path] = []

    def kill() -> None:
        while not (job.folder / "metrics.jsonl").exists():
            time.sleep(0.02)
        rank = next(process for process in psutil.Process().children(recursive=True) if is_rank(process, 1))
        shared.extend(Path(file.path) for file in rank.memory_maps() if file.path.startswith(FOLDER))
        while max(checkpoints(job.folder), default=0) < after_step:
            time.sleep(0.02)
        rank.kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    launch(job)
    assert not killer.is_alive()
    return shared
