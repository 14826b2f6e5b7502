"""A continuous stream as a process of its own: it labels files as they come, and stops when it is told to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from include.stages import ExitCode
from tasks.launching.launch import ROOT
from tests.tasks.stages.score.models import trained


def test_it_labels_files_until_it_is_stopped(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    streaming = {
        "folder": str(tmp_path / "in"), "model": str(trained(tmp_path / "model", encoder)), "settle": 0,
        "continuous": True, "interval": 0.2,
    }  # fmt: skip
    command = [sys.executable, "-m", "tasks", "stream", "--experiment", json.dumps({"streaming": streaming})]
    process = subprocess.Popen([*command, "--run", str(tmp_path / "runs/one")], cwd=ROOT)
    try:
        until(lambda: beat(tmp_path).get("state") == "running", process)
        for name in ("a", "b"):
            batch = beat(tmp_path)["batch"]
            (tmp_path / f"in/{name}.csv").write_text("text\ngood film\n")
            until(lambda: beat(tmp_path)["batch"] != batch, process)  # noqa: B023, for it is called at once
        assert (beat(tmp_path)["rows"], beat(tmp_path)["batch"]) == (2, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == ExitCode.STOPPED
    finally:
        process.kill()
    assert beat(tmp_path)["state"] == "stopped"
    found = pq.read_table(tmp_path / "streams/stream/batches").to_pylist()
    assert sorted((row["source"], row["batch"]) for row in found) == [("a.csv", 0), ("b.csv", 1)]


def beat(home: Path) -> dict[str, Any]:
    file = home / "streams/stream/heartbeat.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
