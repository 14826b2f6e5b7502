"""Which GPUs a training may use, on machines that have some, or almost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from include.stages import BadInput
from tasks.launching.launch import launch
from tasks.training import device
from tasks.training.device import rank_device, runs, usable_gpus
from tests.tasks.launching.jobs import make_job

Machine = Callable[..., None]
CODES = ["sm_80", "sm_90", "compute_90"]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Makes this machine one with these GPUs, by compute capability, on which torch says this at its first use."""

    def make(*capabilities: tuple[int, int], error: Exception | None = None, built: bool = True) -> None:
        def init() -> None:
            if error:
                raise error

        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "init", init)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: capabilities[number])
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU no. {number}")
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: CODES)

    usable_gpus.cache_clear()
    yield make
    usable_gpus.cache_clear()


def test_all_gpus_are_used_unless_they_are_hidden(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine((9, 0), (8, 6))
    assert usable_gpus() == 2
    usable_gpus.cache_clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert usable_gpus() == 0


@pytest.mark.parametrize("said", ["Found no NVIDIA driver on your system. Please check", "No CUDA GPUs are available"])
def test_a_machine_without_a_gpu_needs_none(machine: Machine, said: str) -> None:
    machine(error=RuntimeError(said))
    assert usable_gpus() == 0
    assert rank_device() == torch.device("cpu")


def test_a_driver_that_does_not_work_ends_a_training_before_it_begins(machine: Machine, tmp_path: Path) -> None:
    machine((9, 0), error=RuntimeError("The NVIDIA driver on your system is too old (found version 12020).\nmore"))
    said = r"cannot use a GPU \(The NVIDIA driver .* too old .*12020\)\.\): update its driver, or train on the CPU"
    for ranks in ("auto", 1):
        with pytest.raises(BadInput, match=said):
            launch(make_job(tmp_path, ranks=ranks))


def test_a_gpu_that_torch_has_no_code_for_is_named(machine: Machine) -> None:
    machine((9, 0), (6, 1))
    with pytest.raises(BadInput, match=r"sm_80 sm_90 compute_90, but GPU 1, GPU no\. 1, has .* 6\.1: name the"):
        usable_gpus()


@pytest.mark.parametrize("driver", [False, True])
def test_a_torch_that_is_not_for_gpus_says_so_beside_one(
    machine: Machine, driver: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine((9, 0), built=False)
    monkeypatch.setattr(device, "_DRIVER", tmp_path / ("" if driver else "none"))
    assert usable_gpus() == usable_gpus() == 0
    said = [message for message in caplog.messages if "a GPU is not used, because torch" in message]
    assert len(said) == driver


@pytest.mark.parametrize(
    ("code", "capability", "can"),
    [
        ("sm_90", (9, 0), True), ("sm_80", (8, 6), True), ("sm_80", (9, 0), False), ("sm_90", (8, 9), False),
        ("sm_90a", (9, 0), True), ("sm_100", (10, 0), True), ("sm_120", (10, 0), False),
        ("compute_90", (12, 0), True), ("compute_120", (9, 0), False),
    ],
)  # fmt: skip
def test_code_runs_on_its_generation_and_what_is_compiled_there_on_later_ones(
    code: str, capability: tuple[int, int], can: bool
) -> None:
    assert runs(code, capability) == can
