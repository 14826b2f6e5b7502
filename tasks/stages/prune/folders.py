"""Folders that may be removed: how old they are, how large, and their removal. Links are never followed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from include.artifacts import MANIFEST, locked
from include.stages import Transient

_DAY = 86400


@dataclass(frozen=True)
class Unused:
    """A folder that nothing refers to.

    Attributes:
        kind: runs, artifacts, checkpoints or leftovers (of a stage that was killed).
        path: the folder.
        bytes: of its files.
        days: since it was last used.
    """

    kind: str
    path: Path
    bytes: int
    days: float

    @classmethod
    def at(cls, kind: str, path: Path) -> Unused:
        """The folder as it is now."""
        return cls(kind, path, _size(path), age(path))


def folders(path: Path) -> list[Path]:
    """The folders in a folder, by name; none where it does not exist. A link is none."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


def age(path: Path) -> float:
    """Days since a folder, or what lies directly in it, was last changed. A stage touches what it uses (runner.py)."""
    newest = path.lstat().st_mtime
    with os.scandir(path) as entries:
        newest = max([newest, *(entry.stat(follow_symlinks=False).st_mtime for entry in entries)])
    return (time.time() - newest) / _DAY


def remove(unused: Unused, days: float) -> bool:
    """Remove the folder, unless it has been used in the meantime or a process holds it.

    Raises OSError where that is not allowed.
    """
    path = unused.path
    if age(path) < days:
        return False
    with suppress(Transient):
        if unused.kind == "checkpoints":
            with locked(path):
                shutil.rmtree(path)
        else:
            for first in (MANIFEST, "run.json"):  # what is cut off half-way must not pass for a whole one
                (path / first).unlink(missing_ok=True)
            shutil.rmtree(path)
        return True
    return False


def _size(path: Path) -> int:
    return sum(_sizes(path))


def _sizes(path: Path) -> Iterator[int]:
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(FileNotFoundError):
                yield Path(folder, name).lstat().st_size
