"""Paths that people write: what they mean, and what stands there."""

from __future__ import annotations

from pathlib import Path

from include.stages import BadInput


def user_path(text: str) -> Path:
    """The path, with ~ and ~name as the shell reads them. Raises BadInput when there is no such user."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{text}: there is no user of that name here, write the whole path") from error


def check_file(path: Path, remedy: str) -> None:
    """Raise BadInput unless a regular file stands there. It is not opened: a pipe would keep its reader waiting."""
    if path.is_file():
        return
    if path.is_dir():
        raise BadInput(f"{path} is a folder, not a file: {remedy}")
    if path.exists():
        raise BadInput(f"{path} is a pipe, a socket or a device, not a file: {remedy}")
    raise BadInput(f"{path} is missing: {remedy}")
