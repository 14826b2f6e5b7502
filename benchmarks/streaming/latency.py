"""How long does it take from a file to its predictions?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.tables import table
from tasks.launching.launch import ROOT

#: Seconds to wait for Spark, and for a batch.
PATIENCE = 300


def latency(model: Path, texts: Sequence[str], files: int, rows: int, pause: float, home: Path) -> str:
    """Put files into the folder of a continuous stream, and time each until its batch can be read.

    Args:
        model: the folder of a package.
        texts: what the rows are made of.
        files: the number of files that count. The first two, which load the model, do not.
        rows: the number of rows per file.
        pause: seconds between two files.
        home: the folder of the stream.
    """
    (home / "in").mkdir(parents=True)
    streaming = {"folder": str(home / "in"), "model": str(model), "continuous": True}
    command = [sys.executable, "-m", "tasks", "stream", "--experiment", json.dumps({"streaming": streaming})]
    process = subprocess.Popen([*command, "--run", str(home / "runs/latency")], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        _until(lambda: _state(home) == "running")
        times = [_one(home, number, texts[:rows], pause) for number in range(files + 2)][2:]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    values = [f"{value:.1f}" for value in (*np.percentile(times, (50, 95)), max(times))]
    return table(("files", "rows per file", "p50, s", "p95, s", "longest, s"), [(str(files), str(rows), *values)])


def _one(home: Path, number: int, texts: Sequence[str], pause: float) -> float:
    """Return the seconds from the rename of a file to that of the batch."""
    lines = "\n".join(["text", *(json.dumps(text) for text in texts)]) + "\n"
    (home / f"{number}.csv").write_text(lines, encoding="utf-8")
    began = time.time()
    (home / f"{number}.csv").rename(home / f"in/{number}.csv")
    batch = home / f"streams/stream/batches/batch={number}"
    _until(batch.is_dir)
    time.sleep(pause)
    return batch.stat().st_ctime - began  # a rename changes the time of the inode


def _state(home: Path) -> str:
    file = home / "streams/stream/heartbeat.json"
    return str(json.loads(file.read_text(encoding="utf-8"))["state"]) if file.exists() else ""


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("the stream does not go on: run it by hand to see why")
        time.sleep(0.05)
