"""Paths that users write, and folders and files in folders in which others may write.

In such a folder, anything can be replaced by a link at any time. A check of a path is outdated as soon as it is made,
while the descriptor of an open folder always refers to the same folder. So they are opened level by level, without
following links.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PosixPath
from typing import Any, BinaryIO

from include.stages import BadInput

_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a named pipe would otherwise wait for its other end
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_folder(root: Path, *names: str, make: bool = False) -> Iterator[int]:
    """Yield a descriptor of the folder root/names[0]/names[1]/..., which is valid within the context.

    The root, which the deployment names, may be a link. Raise NotADirectoryError if a link or a file is in the place of
    a folder below it, and FileNotFoundError if one is missing, unless `make` creates it.
    """
    if make:
        root.mkdir(parents=True, exist_ok=True)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(_one_level(name), dir_fd=folder)
            below = os.open(_one_level(name), _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def open_file(root: Path, *names: str) -> BinaryIO:
    """Open the file root/names[0]/... for reading. Raise OSError unless it is a regular file, reached without links."""
    *folders, name = names
    with open_folder(root, *folders) as folder:
        return os.fdopen(_open_regular(_one_level(name), os.O_RDONLY, folder), "rb")


class Dropped(PosixPath):
    """The path of a file in a folder in which others may write.

    It opens regular files only, without waiting for one, and never sees through a link that bears its name. The folder
    itself may be a link.
    """

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Open the file as Path.open does. Raise OSError if it is a link, a pipe, or another special file."""
        return open(self, mode, buffering, encoding, errors, newline, opener=_open_regular)

    def stat(self, *, follow_symlinks: bool = False) -> os.stat_result:
        """Return the status of the file or link itself, which also is_file, is_dir and exists look at."""
        return super().stat(follow_symlinks=False)


def _open_regular(path: str, flags: int, folder: int | None = None) -> int:
    try:
        descriptor = os.open(path, flags | _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise FileNotFoundError(f"{path} is a link") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(f"{path} is not a regular file")
    return descriptor


def _one_level(name: str) -> str:
    if "/" in name or name in ("", ".", ".."):
        raise FileNotFoundError(f"{name!r} is not the name of a file or folder")
    return name


def make_owned_folder(root: Path, folder: Path, owner: tuple[int, int]) -> None:
    """Create a folder at or below a root, and give it, but not its files, to an owner (uid, gid) if it belongs to root.

    Raise BadInput if a link or a file is in its place, or in that of a folder between it and the root.
    """
    try:
        with open_folder(root, *folder.relative_to(root).parts, make=True) as descriptor:
            if os.getuid() == 0 and os.fstat(descriptor).st_uid == 0:
                os.fchown(descriptor, *owner)
    except NotADirectoryError as error:
        raise BadInput(
            f"{folder} is a symbolic link or a file, or lies below one, but stages need a folder: replace it with one. "
            f"To keep everything on another disk, set SPARK_BERT_HOME to a folder there"
        ) from error


def user_path(text: str) -> Path:
    """Expand ~ and ~name in a path, as the shell does. Raise BadInput if there is no user of that name."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{text}: there is no user of that name here: write the absolute path") from error


def user_folder(text: str) -> Path:
    """Return the absolute path of a folder that a user names, also by one of its files, such as a package.json."""
    path = user_path(text).absolute()
    return path.parent if path.is_file() else path


def check_file(path: Path, remedy: str) -> None:
    """Raise BadInput with the remedy unless a path is a regular file. It is not opened: opening a pipe would block."""
    if path.is_file():
        return
    if path.is_dir():
        raise BadInput(f"{path} is a folder, not a file: {remedy}")
    if path.exists():
        raise BadInput(f"{path} is a pipe, a socket or a device, not a file: {remedy}")
    raise BadInput(f"{path} is missing: {remedy}")


def check_home(home: Path) -> None:
    """Raise BadInput if a home is not where it was made, which scripts/home.sh writes into it.

    Records, MLflow's database and Airflow's configuration name its path, so work in a copy would write into the first.
    """
    made = Path()
    with suppress(OSError):
        made = Path((home / ".path").read_text(encoding="utf-8"))
        if made.samefile(home):
            return
    if made != Path():
        raise BadInput(
            f"{home} was made as {made} and then copied or moved: its records, MLflow's database and airflow.cfg name "
            "that path, and runs would write there. Name another SPARK_BERT_HOME, move the folder back, or, if "
            f"{made} is gone, write ln -s {home.resolve()} {made}"
        )
