"""What a rank says of its memory is its own."""

from __future__ import annotations

import subprocess
import sys

from tasks.launching.launch import ROOT

LARGE = 10**9
#: A process that was large, and becomes one that asks for its memory.
CODE = f"""
import os, sys
large = b"x" * {LARGE}
ask = "import torch; from tasks.training.meter import memory; print(memory(torch.device('cpu')))"
os.execv(sys.executable, [sys.executable, "-c", ask])
"""


def test_the_peak_does_not_contain_that_of_the_process_that_started_the_rank() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 10**8 < int(done.stdout) < LARGE
