"""Ranks on this machine, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Lost(NamedTuple):
    """The rank that failed first.

    Attributes:
        rank: its number.
        exit_code: its exit code, or 128 + n if signal n ended it.
    """

    rank: int
    exit_code: int


def run_here(command: Sequence[str], hosts: str) -> Lost | None:
    """Run Python with a command line as every rank. When one of them fails, end the others.

    It is to be called in a process without other children. The ranks' output is that of the process.

    Args:
        command: the arguments of Python, such as ["-m", "package.module"].
        hosts: the hosts and how many ranks each of them has; all are names of this machine.

    Returns:
        The first rank that failed, or None if all succeeded.
    """
    from tasks.launching.rendezvous import rendezvous  # Horovod, which a set-up for one rank leaves out

    ranks: list[subprocess.Popen[bytes]] = []
    with rendezvous(hosts) as environments:
        try:
            for environment in environments:
                # In sessions of their own, because a Ctrl-C is for the stage, which lets them write a checkpoint.
                rank = subprocess.Popen(
                    [sys.executable, *command],
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
                ranks.append(rank)
            return _first_failure(ranks)
        finally:
            for rank in ranks:
                rank.kill()
            for rank in ranks:
                rank.wait()


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]]) -> Lost | None:
    numbers = {process.pid: number for number, process in enumerate(ranks)}
    while numbers:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # in the order in which they end
        assert ended is not None
        number = numbers.pop(ended.si_pid)
        code = ranks[number].wait()
        if code:
            return Lost(number, code if code > 0 else 128 - code)
    return None
