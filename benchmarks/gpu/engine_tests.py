"""The engine's own tests that apply to any machine, on whatever device this one has."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass

from tasks.launching.launch import ROOT

#: They need neither Spark nor Horovod, nor anything of tests/tasks/conftest.py.
FILES = (
    "tests/tasks/training/test_precision_on_device.py", "tests/tasks/training/test_optim.py",
    "tests/tasks/training/test_optim_rows.py", "tests/tasks/training/test_step.py",
    "tests/tasks/encoder/test_padding_free.py",
)  # fmt: skip
LIMIT = 120.0  # seconds for a file


@dataclass(frozen=True)
class Tests:
    """What pytest said: the last line of each file, and the tests that failed."""

    summary: str
    failed: list[str]


def run(quick: bool, end: float) -> Tests:
    """Run the files one after the other until a time of the monotonic clock; of a quick check only the first one."""
    done = [_run(file, min(LIMIT, end - time.monotonic())) for file in FILES[: 1 if quick else None]]
    return Tests("\n".join(tests.summary for tests in done), [failed for tests in done for failed in tests.failed])


def _run(file: str, seconds: float) -> Tests:
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-m", "not long", "-rfE"]
    command = [sys.executable, "-m", "pytest", *options, file]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=max(0.0, seconds))
    except subprocess.TimeoutExpired:
        late = f"{file}: not done after {max(0.0, seconds):.0f} seconds"
        return Tests(late, [late])
    last = done.stdout.strip().rpartition("\n")[2] or done.stderr[-2000:]
    failed = re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)
    if done.returncode and not failed:
        failed = [f"{file}: exit code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"]
    return Tests(f"{file}: {last}", failed)
