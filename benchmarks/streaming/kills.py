"""Is a row lost or labeled twice when the process is killed?"""

from __future__ import annotations

import csv
import itertools
import json
import logging
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.streaming.killed import POINTS
from benchmarks.tables import table
from tasks.launching.launch import ROOT

log = logging.getLogger(__name__)
RANDOM = "at a random time"
#: Seconds: Spark has started before, and the last batch ends after.
EARLIEST, LATEST = 8, 30


def kills(model: Path, texts: Sequence[str], rows: int, files: int, count: int, home: Path) -> str:
    """Label rows in files, one per batch, with a process that is killed `count` times, and print what became of them.

    The points take turns, with a random time as one of them.
    """
    incoming, drawn = home / "in", random.Random(0)
    incoming.mkdir(parents=True)
    every = _write(incoming, texts, rows, files)
    streaming = {"folder": str(incoming), "model": str(model), "settle": 0, "batch_files": 1, "window_rows": rows // 10}
    command = ["stream", "--experiment", json.dumps({"streaming": streaming}), "--run", str(home / "runs/kills")]
    happened: Counter[str] = Counter()
    for number, point in enumerate(itertools.islice(itertools.cycle([*POINTS, RANDOM]), count)):
        where = f"{drawn.uniform(EARLIEST, LATEST):.1f}" if point == RANDOM else point
        code = _run("benchmarks.streaming.killed", where, *command)
        happened[point if code < 0 else "the process ended before"] += 1
        log.info("kill %d, %s: exit code %d, %d batches", number + 1, where, code, len(_batches(home)))
    code = _run("tasks", *command)
    found = Counter((row["source"], row["position"]) for row in _labeled(home))
    lost, twice = sum(one not in found for one in every), sum(times > 1 for times in found.values())
    lines = [(name, str(times)) for name, times in happened.items()]
    said = f"\n{rows:,} rows in {files} files; exit code of the last process {code}; lost: {lost}; twice: {twice}"
    return table(("killed", "times"), lines) + "\n" + said


def _write(folder: Path, texts: Sequence[str], rows: int, files: int) -> list[tuple[str, int]]:
    """Write the files. Return the name and the line of each row."""
    source, every = itertools.cycle(texts), []
    for number in range(files):
        name = f"{number:03d}.csv"
        with (folder / name).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
            writer.writerow(["text"])
            for line in range(rows // files):
                writer.writerow([" ".join(next(source).split())])
                every.append((name, line + 2))
    return every


def _run(*command: str) -> int:
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True).returncode


def _batches(home: Path) -> list[Path]:
    return list((home / "streams/stream/batches").glob("batch=*"))


def _labeled(home: Path) -> list[dict[str, Any]]:
    columns = ["source", "position"]
    rows: list[dict[str, Any]] = pq.read_table(home / "streams/stream/batches", columns=columns).to_pylist()
    return rows
