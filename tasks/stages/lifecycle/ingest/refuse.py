"""Move malformed files of the drop folder to its subfolder refused/, together with the reason."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from include.artifacts import sha256
from include.folders import Dropped, open_folder

#: The subfolder of the drop folder. It is not searched for new files.
FOLDER = "refused"

log = logging.getLogger(__name__)


def set_aside(file: Dropped, digest: str, reason: str) -> None:
    """Move a file to refused/<first 16 digits of its sha256>/, and write reason.txt next to it.

    A file that no longer exists or no longer has this digest is not moved, because another run has moved it or a person
    has corrected it. If the folder cannot be written, the file stays, and every later run reports it again.

    Args:
        file: The malformed file.
        digest: Its sha256 at the time of reading.
        reason: The error.
    """
    if not file.is_file() or sha256(file) != digest:
        return
    target = FOLDER, digest[:16]
    try:
        with open_folder(file.parent) as source, open_folder(file.parent, *target, make=True) as folder:
            _write(folder, "reason.txt", f"{reason}\n")
            # It comes last, so that a moved file always has a reason next to it.
            os.rename(file.name, file.name, src_dir_fd=source, dst_dir_fd=folder)
    except OSError as error:
        log.warning("%s cannot be moved (%s): correct or remove it, or every run will report it again", file, error)
        return
    log.warning("%s was moved to %s: correct it and put it back", file.name, file.parent.joinpath(*target))


def _write(folder: int, name: str, text: str) -> None:
    """Write a new file into an open folder, in which others may have put something of this name."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    with os.fdopen(
        os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder), "w", encoding="utf-8"
    ) as file:
        file.write(text)
