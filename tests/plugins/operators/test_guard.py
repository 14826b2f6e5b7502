"""The guard: whatever way the command or its caller ends, no process of it is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from spark_bert.operators import process

GUARD = Path(process.__file__).with_name("guard.py")
#: Starts a child that ignores SIGTERM in a session of its own, and a daemon whose parent ends at once.
FAMILY = """
import subprocess, sys, time
rank = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
daemon = "import os, time; os.fork() and os._exit(0); time.sleep(600)"
python = [sys.executable, "-S", "-c"]
child = subprocess.Popen([*python, rank, sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
subprocess.run([*python, daemon, sys.argv[1]], start_new_session=True)
print("family is up", flush=True)
"""


def guarded(body: str, marker: str, grace: float = 0.5) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-S", "-c", body, marker]
    return subprocess.Popen(
        [sys.executable, "-I", str(GUARD), str(grace), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def family(marker: str) -> list[psutil.Process]:
    """The living processes that carry the marker, the guard aside."""
    found = []
    for candidate in psutil.process_iter(["cmdline", "status"]):
        line = candidate.info["cmdline"] or []
        if marker in line and str(GUARD) not in line and candidate.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(candidate)
    return found


@pytest.fixture
def marker() -> str:
    return uuid.uuid4().hex


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit(75)", 75),
        ("import os; os.kill(os.getpid(), 9)", 137),
    ],
)
def test_the_exit_code_is_the_commands(body: str, code: int, marker: str) -> None:
    with guarded(body, marker) as guard:
        assert guard.wait(timeout=20) == code


def test_the_command_takes_sigterm_again(marker: str) -> None:
    """The guard blocks signals for itself; what it starts must not inherit that."""
    body = "import signal; raise SystemExit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    with guarded(body, marker) as guard:
        assert guard.wait(timeout=20) == 0


def test_a_finished_command_leaves_no_orphan(marker: str) -> None:
    with guarded(FAMILY, marker) as guard:
        assert guard.wait(timeout=20) == 0
        assert family(marker) == []


@pytest.mark.parametrize("way", ["SIGTERM", "caller gone"])
def test_a_stopped_command_leaves_none_of_its_family(way: str, marker: str) -> None:
    guard = guarded(FAMILY + "time.sleep(600)", marker)
    assert guard.stdin and guard.stdout
    assert guard.stdout.readline() == b"family is up\n"
    assert len(family(marker)) == 3
    if way == "SIGTERM":
        guard.send_signal(signal.SIGTERM)
    else:
        guard.stdin.close()
    assert guard.wait(timeout=20) == 143
    assert family(marker) == []
    guard.stdout.close()


def stop_once_up(body: str, marker: str) -> float:
    """Send SIGTERM to the guard of a command that has said that it is up; the seconds until both had ended, by 143."""
    guard = guarded(body, marker, grace=10)
    assert guard.stdout
    guard.stdout.readline()
    started = time.monotonic()
    guard.send_signal(signal.SIGTERM)
    assert guard.wait(timeout=20) == 143
    return time.monotonic() - started


def test_a_command_has_the_grace_to_clean_up(marker: str, tmp_path: Path) -> None:
    body = f"""
import pathlib, signal, sys, time
def clean(*_):
    time.sleep(0.5)
    pathlib.Path({str(tmp_path / "clean")!r}).touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, clean)
print("up", flush=True)
time.sleep(600)
"""
    assert stop_once_up(body, marker) < 8
    assert (tmp_path / "clean").exists()


def test_the_command_may_still_use_its_family_when_it_is_stopped(marker: str, tmp_path: Path) -> None:
    """As a training whose ranks have to write a checkpoint first."""
    body = f"""
import pathlib, signal, subprocess, sys, time
helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
def clean(*_):
    time.sleep(0.5)
    pathlib.Path({str(tmp_path / "helped")!r}).write_text(str(helper.poll()))
    sys.exit(143)
signal.signal(signal.SIGTERM, clean)
print("up", flush=True)
time.sleep(600)
"""
    stop_once_up(body, marker)
    assert (tmp_path / "helped").read_text() == "None"
