"""The wheels that image builds take from this machine, so that set-up's work is not done a second time."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from tests.e2e.make_run import ROOT

PYTHON = ROOT / ".venv/tasks/bin/python"


def fill_wheelhouse(folder: Path) -> None:
    """Let the folder hold torch and Horovod as set-up installed them, where the images may have the same; else none.

    A torch with CUDA would bring gigabytes of its libraries into the images, so it stays out.
    """
    torch = _output(PYTHON, "-c", "import torch; print(torch.__version__)")
    for stale in {*folder.glob("torch-*.whl"), *folder.glob("horovod-*.whl")} - set(folder.glob(f"torch-{torch}-*")):
        stale.unlink()
    if not torch.endswith("+cpu"):
        return
    if not any(folder.glob(f"torch-{torch}-*")):
        _output(PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, f"torch=={torch}")
    for wheel in _horovod(torch):
        shutil.copy(wheel, folder)


def _horovod(torch: str) -> list[Path]:
    """The wheel that scripts/horovod.sh built, where it was built on the images' own Debian."""
    if platform.freedesktop_os_release().get("VERSION_CODENAME") != "bookworm":
        return []
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    wheels = Path(os.environ.get("SPARK_BERT_CACHE") or Path(cache, "spark-bert")) / "wheels"
    return [*wheels.glob(f"horovod-*-torch{torch}-py311-{platform.machine()}/*.whl")]


def _output(*command: str | Path) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
