"""What kills change of a search: `.venv/tasks/bin/python -m benchmarks.search_kills`.

Searches once undisturbed, and once in processes that get SIGKILL twenty times, at random moments, and compares trials,
rungs, metrics, and the best one. With --quick: two kills.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import table
from tests.tasks.search.searches import killed, search, values, without_times


def main() -> None:
    """Print a row for each search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    kills = 2 if parser.parse_args().quick else 20
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        experiment = values(root / "data", trials=4 if kills == 2 else 18)
        torch.set_num_threads(1)  # as in the processes that are killed: sums depend on it in the last bit
        began = time.monotonic()
        whole = search(root / "whole", experiment)
        between = time.monotonic()
        found, befell = killed(root / "killed", experiment, kills, longest=4)
        ended = time.monotonic()
    rows = [_row("undisturbed", whole, 0, between - began), _row("killed", found, befell, ended - between)]
    print(table(["search", "kills", "trials", "promotions", "best trial", "metric", "seconds"], rows))
    print(f"\nall trials, rungs, metrics and the best one are equal: {without_times(found) == without_times(whole)}")


def _row(name: str, found: dict[str, Any], kills: int, seconds: float) -> list[str]:
    trials, best = found["trials"], found["trials"][found["best"]]
    promotions = sum(len(trial["rungs"]) - 1 for trial in trials)
    counts = map(str, (kills, len(trials), promotions, best["number"]))
    return [name, *counts, f"{best['metric']:.4f}", f"{seconds:.0f}"]


if __name__ == "__main__":
    main()
