"""The age, the size and the removal of unused folders. Symbolic links are never followed."""

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
class UnusedFolder:
    """A folder that nothing refers to, with the total size of its files, and the days since its last use."""

    kind: str
    path: Path
    bytes: int
    days: float

    @classmethod
    def at(cls, kind: str, path: Path) -> UnusedFolder:
        """Measure a folder."""
        return cls(kind, path, sum(_sizes(path)), age(path))


def folders(path: Path) -> list[Path]:
    """Return the folders in a folder, sorted by name; empty if it does not exist. Symbolic links are left out."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


def age(path: Path) -> float:
    """Return the days since a folder, which the runner touches when a stage uses it, or an entry of it was changed."""
    newest = path.lstat().st_mtime
    with os.scandir(path) as entries:
        newest = max([newest, *(entry.stat(follow_symlinks=False).st_mtime for entry in entries)])
    return (time.time() - newest) / _DAY


def remove(unused: UnusedFolder, days: float) -> bool:
    """Remove a folder, and return whether it is gone: it stays if it was used within these days, or is locked."""
    path = unused.path
    if age(path) < days:
        return False
    with suppress(Transient):
        if unused.kind == "checkpoints":
            with locked(path):
                shutil.rmtree(path)
        else:
            for first in (MANIFEST, "run.json"):  # so that an incompletely removed folder does not count as complete
                (path / first).unlink(missing_ok=True)
            shutil.rmtree(path)
        return True
    return False


def _sizes(path: Path) -> Iterator[int]:
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(FileNotFoundError):
                yield Path(folder, name).lstat().st_size
