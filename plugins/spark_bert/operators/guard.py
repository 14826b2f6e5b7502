"""Runs a command (`python guard.py GRACE COMMAND...`) and leaves none of its processes behind.

The caller holds the other end of this process's stdin. When the caller is gone, by SIGKILL too, the pipe closes
and everything is stopped, as on SIGTERM. Descendants cannot escape: Horovod starts its ranks in sessions of their
own and Spark its JVM, but this process is their subreaper, so the kernel hands every orphan of theirs to it.

The exit code is the command's (128 + n after signal n), or 143 when it was stopped. Linux only.
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
    """Run the command to its end, or until this process is told to stop; its exit code."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot become the subreaper of the stage's processes")
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
    while os.read(0, 1):  # the caller writes nothing: this waits for the end of the pipe
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _reap(stage: int) -> int | None:
    """Collect the children that have ended, orphans among them; the stage's exit code when it is one of them."""
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
    """SIGTERM to the stage, then to those that it leaves; SIGKILL to all that are there when the grace is over.

    The stage comes first: its own processes may have to help it save what it has.
    """
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
        with suppress(psutil.NoSuchProcess):  # it ended in between, which is what is wanted
            process.send_signal(number)


def _living(only: int | None = None) -> list[psutil.Process]:
    """The descendants, or the one of them that has this id."""
    living = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and only in (None, process.pid):
                living.append(process)
    return living


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
