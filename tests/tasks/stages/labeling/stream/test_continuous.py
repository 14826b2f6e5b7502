"""A continuous stream as a process of its own: it labels files as they come, and stops when it is told to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from include.stages import ExitCode
from tasks.launching.launch import ROOT
from tests.tasks.stages.labeling.score.models import trained


def test_it_labels_files_until_it_is_stopped(encoder: Path, tmp_path: Path) -> None:
    with continuous(tmp_path, encoder) as process:
        for name in ("a", "b"):
            label(tmp_path, name, process)
        assert (beat(tmp_path)["rows"], beat(tmp_path)["batch"]) == (2, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == ExitCode.STOPPED
    assert beat(tmp_path)["state"] == "stopped"
    found = pq.read_table(tmp_path / "streams/stream/batches").to_pylist()
    assert sorted((row["source"], row["batch"]) for row in found) == [("a.csv", 0), ("b.csv", 1)]


@pytest.mark.long
def test_the_model_stays_loaded_while_no_files_come(encoder: Path, tmp_path: Path) -> None:
    with continuous(tmp_path, encoder) as process:
        label(tmp_path, "a", process)
        loaded = with_model(process)
        time.sleep(80)  # Spark looks every ten seconds for workers that have been idle for a minute
        assert loaded and with_model(process) == loaded
        assert (beat(tmp_path)["rows"], beat(tmp_path)["batch"]) == (1, 0)


@contextmanager
def continuous(home: Path, encoder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A stream that labels what comes into the folder `in` of the home."""
    (home / "in").mkdir()
    streaming = {
        "folder": str(home / "in"), "model": str(trained(home / "model", encoder)), "settle": 0,
        "continuous": True, "interval": 0.2,
    }  # fmt: skip
    command = [sys.executable, "-m", "tasks", "stream", "--experiment", json.dumps({"streaming": streaming})]
    process = subprocess.Popen([*command, "--run", str(home / "runs/one")], cwd=ROOT)
    try:
        until(lambda: beat(home).get("state") == "running", process)
        yield process
    finally:
        process.kill()


def label(home: Path, name: str, process: subprocess.Popen[bytes]) -> None:
    """Write a file with one row, and wait until it is labeled."""
    batch = beat(home)["batch"]
    (home / f"in/{name}.csv").write_text("text\ngood film\n")
    until(lambda: beat(home)["batch"] != batch, process)


def with_model(process: subprocess.Popen[bytes]) -> set[int]:
    """The workers that have loaded PyTorch, and with it the model."""
    found = psutil.Process(process.pid).children(recursive=True)
    # The shell that starts Java may leave it a child that nothing waits for.
    found = [one for one in found if one.status() != psutil.STATUS_ZOMBIE]
    found = [one for one in found if one.status() != psutil.STATUS_ZOMBIE]  # which has no memory to look at
    return {one.pid for one in found if any("libtorch" in mapped.path for mapped in one.memory_maps())}


def beat(home: Path) -> dict[str, Any]:
    file = home / "streams/stream/heartbeat.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
