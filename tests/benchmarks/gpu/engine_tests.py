"""The engine's own tests that apply to any machine, on whatever device this one has."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from tasks.launching.launch import ROOT

#: They need neither Spark nor Horovod, nor anything of tests/tasks/conftest.py.
FILES = (
    "tests/tasks/training/test_on_device.py", "tests/tasks/training/test_optim.py",
    "tests/tasks/training/test_row_adamw.py", "tests/tasks/training/test_step.py",
    "tests/tasks/encoder/test_padding_free.py",
)  # fmt: skip


@dataclass(frozen=True)
class Tests:
    """What pytest said: its last line, and the tests that failed."""

    summary: str
    failed: list[str]


def run(quick: bool) -> Tests:
    """Run them; of a quick check only the first file."""
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-m", "not long", "-rfE"]
    if find_spec("pytest_timeout"):
        options.append("--timeout=300")
    command = [sys.executable, "-m", "pytest", *options, *FILES[: 1 if quick else None]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = done.stdout.strip().rpartition("\n")[2] or done.stderr[-2000:]
    failed = re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)
    if done.returncode and not failed:
        failed = [f"pytest ended with exit code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"]
    return Tests(f"tests of the engine: {last}", failed)
