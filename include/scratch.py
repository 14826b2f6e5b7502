"""Temporary folders that are removed with their process, or by the next process if theirs was killed.

The process holds its folder with flock, and the kernel releases this lock however the process ends. The name of the
folder identifies the kernel that it was made on: the locks of other hosts on a shared file system may not be visible
here, so only folders of the same kernel are swept. Containers on one host share its kernel.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a temporary folder for the context, after removing those of killed processes below the same parent."""
    sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=parent))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        folder = _mark(folder, descriptor)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def sweep(parent: Path) -> None:
    """Remove the scratch folders below parent that were made on this kernel and whose process has ended."""
    if not kernel():
        return
    for folder in parent.glob(f"*-{kernel()}"):
        with suppress(OSError):  # it is not a folder, its process is still running, or it belongs to another user
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


@cache
def kernel() -> str:
    """Return 12 hexadecimal digits that identify this boot of the kernel, or "" if the kernel has no boot id."""
    try:
        return _BOOT.read_text(encoding="ascii").strip().replace("-", "")[:12]
    except OSError:
        return ""


def _mark(folder: Path, descriptor: int) -> Path:
    """Lock the folder, and only then give it the name under which it can be swept."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # The file system has no locks, so the folder keeps a name that is never swept.
        return folder
    return folder.rename(folder.with_name(f"{folder.name}-{kernel()}")) if kernel() else folder
