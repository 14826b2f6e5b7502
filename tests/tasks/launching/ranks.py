"""Running a test's function on several of Horovod's ranks."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tasks.launching import tuning
from tasks.launching.driver import run_here
from tasks.launching.launch import LIMITS, ROOT, UNFUSED

#: Names of this machine, each of which Horovod takes for a host of its own.
HOSTS = ("localhost", "127.0.0.1")


def on_ranks(function: Callable[[Path], None], ranks: int | Sequence[int], folder: Path) -> None:
    """Call a test module's function with the folder on every rank. Fails with the ranks' output if one of them does.

    ranks: how many, or how many on each of up to two hosts, which are this machine under two names.
    The launcher waits for all children of its process, hence a process of its own.
    """
    by_host = [ranks] if isinstance(ranks, int) else ranks
    hosts = ",".join(f"{host}:{count}" for host, count in zip(HOSTS, by_host, strict=False))
    command = [sys.executable, "-m", __name__, hosts, function.__module__, function.__name__, str(folder)]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **LIMITS, **UNFUSED, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def is_rank(process: psutil.Process, rank: int) -> bool:
    """Whether a process below this one is the training's rank of this number."""
    try:
        command, environment = process.cmdline(), process.environ()
    except psutil.Error:  # a process that ended meanwhile, or a zombie
        return False
    return "tasks.launching.rank" in command and environment.get("HOROVOD_RANK") == str(rank)


def _call(module: str, name: str, folder: str) -> None:
    import horovod.torch as hvd

    tuning.set_cycle(gpus=0)
    hvd.init()
    try:
        getattr(importlib.import_module(module), name)(Path(folder))
    finally:
        hvd.shutdown()


def _main(hosts: str, *call: str) -> int:
    """Be the launcher, or a rank that it has started, which is told no hosts."""
    if not hosts:
        _call(*call)
        return 0
    assert __spec__ is not None
    return 0 if run_here(["-m", __spec__.name, "", *call], hosts) is None else 1


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
