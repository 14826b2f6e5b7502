"""A checkout of a test's own, whose data/ it may fill."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.e2e.make_run import ROOT


def own_checkout(folder: Path) -> Path:
    """What runs of this one, copied; the environments are shared."""
    for name in ("dags", "include", "plugins", "tasks", "scripts", "requirements"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder
