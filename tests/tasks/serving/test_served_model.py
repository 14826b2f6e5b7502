"""The model of the service: with how many threads it computes."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from include.artifacts import write_json
from tasks.serving import served_model
from tasks.serving.served_model import ServedModel, open_model, threads_of

ENOUGH = 1.0  # seconds of processor time


def times() -> dict[int, float]:
    return {thread.id: thread.user_time + thread.system_time for thread in psutil.Process().threads()}


def working(model: ServedModel, callers: int) -> int:
    """Return how many threads have taken a tenth or more of the time that a model has taken in some batches at once."""
    ids = np.full((64, 16), 5)

    def compute(_: int) -> None:
        model.package.backend.logits(ids, np.ones_like(ids), np.zeros_like(ids))

    before = times()
    with ThreadPoolExecutor(callers) as pool:
        while True:
            list(pool.map(compute, range(20 * callers)))
            spent = [now - before.get(thread, 0.0) for thread, now in times().items()]
            if sum(spent) > ENOUGH:
                return sum(10 * each > sum(spent) for each in spent)


@pytest.mark.parametrize("engine", ["torch", "onnxruntime", "openvino"])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_form_computes_with_the_threads_of_the_settings(
    package: Path, tmp_path: Path, engine: str, threads: int
) -> None:
    copy = shutil.copytree(package, tmp_path / "package")
    said = json.loads((copy / "package.json").read_text(encoding="utf-8"))
    for form in said["forms"]:
        form["offered"] = form["engine"] == engine and form["precision"] == "fp32"
    write_json(copy / "package.json", said)
    assert working(open_model(copy, "", "", threads), threads) == threads


@pytest.mark.parametrize(("quota", "expected"), [("50000 100000", 1), ("max 100000", None), ("9000000 100000", None)])
def test_a_quota_of_the_container_limits_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int | None
) -> None:
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    monkeypatch.setattr(served_model, "QUOTA", tmp_path / "cpu.max")
    assert threads_of(0) == (expected or len(os.sched_getaffinity(0)))
    assert threads_of(3) == 3
