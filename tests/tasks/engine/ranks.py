"""Running a test's function on several of Horovod's ranks."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tasks.engine.launch import LIMITS, ROOT, UNFUSED


def on_ranks(function: Callable[[Path], None], ranks: int, folder: Path) -> None:
    """Call a test module's function with the folder on every rank. Fails with the ranks' output if one of them does.

    Horovod's launcher takes over the signals of its process and prints to stdout, hence a process of its own.
    """
    command = [sys.executable, "-m", __name__, function.__module__, function.__name__, str(ranks), str(folder)]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **LIMITS, **UNFUSED, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _call(module: str, name: str, folder: str) -> None:
    import horovod.torch as hvd

    hvd.init()
    try:
        getattr(importlib.import_module(module), name)(Path(folder))
    finally:
        hvd.shutdown()


def _main(module: str, name: str, ranks: str, folder: str) -> None:
    import horovod.runner

    horovod.runner.run(
        _call, (module, name, folder), num_proc=int(ranks), use_gloo=True, network_interfaces=["lo"], disable_cache=True
    )


if __name__ == "__main__":
    _main(*sys.argv[1:])
