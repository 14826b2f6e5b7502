"""The files outside the store that a stage reads: their digests, part of the key, are compared again after the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from include.artifacts import sha256
from include.stages import Transient

_noted: ContextVar[dict[Path, str] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[None]:
    """Note the files that are hashed in this context."""
    token = _noted.set({})
    try:
        yield
    finally:
        _noted.reset(token)


def digest(file: Path) -> str:
    """Return the sha256 of a file, and note it."""
    found = sha256(file)
    note(file, found)
    return found


def note(file: Path, found: str) -> None:
    """Note the sha256 of a file."""
    if (notes := _noted.get()) is not None:
        notes[file] = found


def settle() -> None:
    """Check what was noted, and forget it: it was read, and may change from here on."""
    check_unchanged()
    if (notes := _noted.get()) is not None:
        notes.clear()


def check_unchanged() -> None:
    """Raise Transient if a file that was noted in this context is gone or has another content."""
    for file, sha256_then in (_noted.get() or {}).items():
        if not file.is_file() or sha256(file) != sha256_then:
            raise Transient(f"{file} was changed while it was read, so nothing was kept: run the stage again")
