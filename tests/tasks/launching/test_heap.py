"""What becomes of memory that a rank has freed, in processes of their own: glibc keeps its settings to the end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tasks.launching.launch import ROOT

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
