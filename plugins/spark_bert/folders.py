"""Folders and files that stages write, opened one level after the other: a link is refused, never followed.

Whoever may write into a folder may put a link in the place of anything in it, at any moment. A path that was checked a
moment ago therefore says nothing; the descriptor of an opened folder does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from include.stages import BadInput

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(root: Path, *names: str, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder root/names[0]/names[1]/..., valid within the context.

    The root is the deployment's word and may be a link; nothing below it may. With `make`, folders that are missing
    are made.

    Raises NotADirectoryError for a link or a file in a folder's place, FileNotFoundError for a missing folder.
    """
    if make:
        root.mkdir(parents=True, exist_ok=True)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(_plain(name), dir_fd=folder)
            below = os.open(_plain(name), _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def opened_file(root: Path, *names: str) -> BinaryIO:
    """The file root/names[0]/names[1]/..., open for reading; below the root, neither it nor a folder may be a link.

    Raises OSError for a link, a missing file, and what is no file.
    """
    *folders, name = names
    with opened(root, *folders) as folder:
        # Not blocking: a pipe in the file's place would let us wait for its writer.
        file = os.fdopen(os.open(_plain(name), _FILE, dir_fd=folder), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(f"{name} is no file")
    return file


def _plain(name: str) -> str:
    """The name of one level. Raises FileNotFoundError for one that would lead to another."""
    if "/" in name or name in ("", ".", ".."):
        raise FileNotFoundError(f"{name!r} is the name of no file or folder")
    return name


def hand_over(root: Path, folder: Path, owner: tuple[int, int]) -> None:
    """Make a folder at or below the root. Where it is root's, give it, and nothing that lies in it, to the owner.

    Raises BadInput for a link or a file on the way from the root to the folder.
    """
    try:
        with opened(root, *folder.relative_to(root).parts, make=True) as descriptor:
            if os.getuid() == 0 and os.fstat(descriptor).st_uid == 0:
                os.fchown(descriptor, *owner)
    except NotADirectoryError as error:
        raise BadInput(
            f"{folder} is a symbolic link or a file, or lies below one; stages are given only folders: put one "
            f"in its place. To keep everything on another disk, let SPARK_BERT_HOME name a folder there"
        ) from error
