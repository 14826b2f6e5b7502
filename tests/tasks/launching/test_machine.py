"""How many ranks and threads a training has on a machine, and where they compute."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from include.named_experiments import build
from include.stages import BadInput
from tasks.launching import layouts
from tasks.launching.launch import launch
from tasks.launching.layouts import with_ranks
from tasks.launching.tuning import threads
from tasks.training.device import device_of
from tasks.training.job import Job
from tests.tasks.launching.jobs import make_job


def job(**values: Any) -> Job:
    return Job(build(values, "the test's experiment"), Path(), Path(), Path())


def settled(job: Job, gpus: int) -> Job:
    """The job with its number of ranks, for which nothing need be measured."""

    def fail(job: Job, folder: Path, ranks: int) -> None:
        raise AssertionError(f"{ranks} ranks are measured")

    return with_ranks(job, gpus, Path(), fail)


@pytest.mark.parametrize(("gpus", "ranks"), [(1, 1), (2, 2), (8, 8)])
def test_auto_is_a_rank_for_each_gpu(gpus: int, ranks: int) -> None:
    assert settled(job(), gpus).ranks == ranks
    assert settled(job(training={"ranks": 4}), gpus).ranks == 4


def test_auto_divides_a_batch_of_a_fixed_size(caplog: pytest.LogCaptureFixture) -> None:
    assert settled(job(), 6).ranks == 4
    assert "4 of 6 GPUs are used: training.batch_size 32 has no larger divisor" in caplog.text
    caplog.clear()
    assert settled(job(batching={"kind": "tokens"}), 6).ranks == 6
    assert not caplog.text


DIVIDED = {
    "training": {"sparse_embeddings": False, "fused_layers": False, "batch_size": 6},
    "parallel": {"tensor": 2},
}  # fmt: skip


@pytest.mark.parametrize(("gpus", "ranks"), [(0, 2), (2, 2), (7, 6)])
def test_auto_is_a_number_of_whole_copies_of_a_divided_model(gpus: int, ranks: int) -> None:
    assert settled(job(**DIVIDED), gpus).ranks == ranks


def test_auto_says_why_gpus_are_left_over_or_too_few_for_a_divided_model(caplog: pytest.LogCaptureFixture) -> None:
    settled(job(**DIVIDED), 7)
    assert "6 of 7 GPUs are used: more ranks are no multiple of 2, or too many for batches of equal size" in caplog.text
    with pytest.raises(BadInput, match=r"among 2 ranks, .*, but this machine has 1: write values .* at most 1"):
        settled(job(**DIVIDED), 1)


def test_compression_without_another_rank_is_said_to_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    settled(job(training={"ranks": 1}, communication={"compression": "int8"}), 0)
    assert "compression int8 has no effect: write training.ranks: 2 or more" in caplog.text
    caplog.clear()
    settled(job(communication={"compression": "int8"}), 2)
    assert not caplog.text


def test_more_ranks_than_gpus_are_bad_input() -> None:
    with pytest.raises(BadInput, match=r"one machine, which has fewer GPUs \(1\): write training\.ranks: auto, or 1"):
        device_of(local_rank=0, local_size=2, gpus=1)
    assert [device_of(rank, 2, gpus=3) for rank in (0, 1)] == ["cuda:0", "cuda:1"]
    assert device_of(local_rank=1, local_size=2, gpus=0) == "cpu"


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_rank_by_itself_keeps_to_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """joblib has a variable of its own that stands for a quota of the container."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    caplog.set_level(logging.INFO)
    one = make_job(tmp_path, ranks="auto", epochs=0.25, evaluations=1)
    launch(one)
    summary = json.loads((one.output / "training.json").read_text())
    assert (summary["ranks"], summary["threads"]) == (1, 1)
    assert "training with ranks: 1, threads of each: 1, device: cpu" in caplog.text


@pytest.mark.usefixtures("two_threads")
def test_without_horovod_a_long_training_says_what_could_be_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "horovod", None)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    caplog.set_level(logging.INFO)
    launch(make_job(tmp_path, ranks="auto", epochs=0.25, evaluations=1))
    assert "with Horovod" not in caplog.text
    monkeypatch.setattr(layouts, "LONG", 0)
    launch(make_job(tmp_path, ranks="auto", epochs=0.25, evaluations=1))
    assert re.search(r"one rank has trained for \d s; with Horovod \(`make setup`\), more may be faster", caplog.text)


def test_ranks_share_the_quota_and_each_has_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert threads(ranks=1) == threads(ranks=2) == 1
