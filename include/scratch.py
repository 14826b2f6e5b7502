"""Temporary folders that go with their owner, and do so too when it was killed.

A folder's owner holds it by flock, which ends with the process, however that ends. The folder's name says on which
kernel it was made: the locks of another host on the same file system may not be seen from here, so only folders of
this kernel are ever swept. Containers on one host share its kernel.
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
    """A new folder below parent, removed at the end; the leftovers of killed owners below parent are removed first."""
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
    """Remove the scratch folders below parent whose owner, on this kernel, has ended."""
    if not kernel():
        return
    for folder in parent.glob(f"*-{kernel()}"):
        with suppress(OSError):  # it is a link or no folder, its owner lives, or it is another user's
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


@cache
def kernel() -> str:
    """12 hexadecimal digits that are drawn anew at each boot; "" where there is no such number."""
    try:
        return _BOOT.read_text(encoding="ascii").strip().replace("-", "")[:12]
    except OSError:
        return ""


def _mark(folder: Path, descriptor: int) -> Path:
    """Hold the folder, and only then give it the name under which it can be swept."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a file system without locks: then nobody must sweep it
        return folder
    return folder.rename(folder.with_name(f"{folder.name}-{kernel()}")) if kernel() else folder
