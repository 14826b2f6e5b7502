"""What becomes of memory that a rank has freed, in processes of their own: glibc keeps its settings to the end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tasks.launching.launch import ROOT

#: Prints the memory that a process holds after its second block of 24 MB is freed, beyond what it held before, in MB.
PROGRAM = """
import sys, psutil, torch
from tasks.launching import heap

if sys.argv[1] != "as it is":
    heap.settle(divided=sys.argv[1] == "divided")
torch.ones(1)
before = psutil.Process().memory_info().rss
for _ in range(2):
    torch.ones(6 * 2**20)
print((psutil.Process().memory_info().rss - before) / 2**20)
"""


def held_after_freeing(settings: str) -> float:
    command = [sys.executable, "-c", PROGRAM, settings]
    return float(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("settings", ["as it is", "whole"])
def test_memory_is_kept_for_the_next_step_of_a_whole_model(settings: str) -> None:
    """glibc by itself keeps it, too: this is what the setting for divided models changes."""
    assert held_after_freeing(settings) > 20


def test_memory_is_returned_where_ranks_divide_a_model() -> None:
    assert held_after_freeing("divided") < 4
