"""What a process sets before it trains: what becomes of memory that it has freed, and Horovod's cycle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.launching import tuning
from tasks.launching.launch import ROOT
from tests.tasks.launching.ranks import on_ranks

#: Prints the memory that a process holds after it has freed two blocks of a size, beyond what it held before, in MB.
PROGRAM = """
import sys, psutil, torch
from tasks.launching.tuning import tune_heap

settings, megabytes = sys.argv[1:]
torch.set_num_threads(1)
if settings != "as it is":
    tune_heap(divided=settings == "divided")
torch.ones(1)
before = psutil.Process().memory_info().rss
for _ in range(2):
    torch.ones(int(megabytes) * 2**18)
print((psutil.Process().memory_info().rss - before) / 2**20)
"""


@pytest.mark.parametrize(
    ("settings", "megabytes", "kept"),
    [
        ("as it is", 40, False),  # more than the 32 MB up to which glibc by itself keeps what was freed
        ("whole", 40, True),
        ("as it is", 24, True),
        ("divided", 24, False),
    ],
)
def test_freed_memory_is_kept_for_a_whole_model_and_returned_for_a_divided_one(
    settings: str, megabytes: int, kept: bool
) -> None:
    command = [sys.executable, "-c", PROGRAM, settings, str(megabytes)]
    held = float(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert held > megabytes - 4 if kept else held < 4


def test_the_thread_leaves_the_cpu_to_its_rank(tmp_path: Path) -> None:
    on_ranks(_idle, 2, tmp_path)


def _idle(folder: Path) -> None:
    """With 0 ms, the thread takes most of a CPU."""
    before = time.process_time()
    time.sleep(1)
    assert time.process_time() - before < 0.3


@pytest.mark.parametrize(("gpus", "cycle"), [(0, tuning.ON_CPU), (2, tuning.ON_GPU)])
def test_a_cycle_is_longer_where_the_thread_shares_a_cpu_with_its_rank_unless_the_user_has_set_one(
    monkeypatch: pytest.MonkeyPatch, gpus: int, cycle: str
) -> None:
    monkeypatch.delenv(tuning.CYCLE, raising=False)
    tuning.set_cycle(gpus)
    assert os.environ[tuning.CYCLE] == cycle
    monkeypatch.setenv(tuning.CYCLE, "2.5")
    tuning.set_cycle(gpus)
    assert os.environ[tuning.CYCLE] == "2.5"
