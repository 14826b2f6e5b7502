"""Run a command (`python guard.py GRACE COMMAND...`) and make sure that none of its processes outlives it.

The caller holds the other end of this process's stdin. When the caller ends, even by SIGKILL, the pipe closes, and this
process stops the command as it does on SIGTERM. It is the subreaper of its descendants, so the kernel makes each orphan
its child: Horovod starts its ranks, and Spark its JVM, in sessions of their own. GRACE is the time between SIGTERM and
SIGKILL in seconds. The exit code is the command's, 128 + n after signal n, or 143 if it was stopped. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress

import psutil

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_STOPPED = 128 + signal.SIGTERM


def main(grace: float, command: list[str]) -> int:
    """Run the command until it ends, this process gets a SIGTERM, or the caller ends, and return the exit code."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot become the subreaper of the stage's processes")
    awaited = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    stage = os.posix_spawn(command[0], command, os.environ, file_actions=[no_input], setsigmask=())
    threading.Thread(target=_stop_with_caller, daemon=True).start()
    code = None
    while code is None and signal.sigwait(awaited) == signal.SIGCHLD:
        code = _reap(stage)
    _end_all(stage, grace)
    return _STOPPED if code is None else code


def _stop_with_caller() -> None:
    while os.read(0, 1):  # the caller writes nothing, so this blocks until the pipe is closed
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _reap(stage: int) -> int | None:
    """Reap the children that have ended. Return the exit code of the stage if it is one of them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == stage:
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code


def _end_all(stage: int, grace: float) -> None:
    """Send SIGTERM to the stage, which may need its processes to save its state, then to these, and SIGKILL to all."""
    deadline = time.monotonic() + grace
    _signal(_living(stage), signal.SIGTERM)
    while _living(stage) and time.monotonic() < deadline:
        time.sleep(0.05)
        _reap(stage)
    _signal(_living(), signal.SIGTERM)
    while _living():
        if time.monotonic() > deadline:
            _signal(_living(), signal.SIGKILL)
        time.sleep(0.05)
        _reap(stage)


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # it has ended by itself
            process.send_signal(number)


def _living(only: int | None = None) -> list[psutil.Process]:
    """Return the descendants that are alive, or only the one with this id."""
    living = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and only in (None, process.pid):
                living.append(process)
    return living


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
