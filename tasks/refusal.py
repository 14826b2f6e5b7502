"""Translate errors of the operating system into stage errors: either try again, or fix something first."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from include.stages import BadInput, StageError, Transient
from include.text import shorten

_FULL = (errno.ENOSPC, errno.EDQUOT)
#: Errors that another try cannot solve, with the explanation and the remedy that follow the path in the message.
_LASTING = {
    errno.EACCES: "user {user} has no permission to use it: give that user access, or choose another path",
    errno.EPERM: "user {user} has no permission to do this: give that user access, or choose another path",
    errno.ENOTDIR: "there is a file where a folder is expected: move it away, or choose another path",
    errno.EEXIST: "there is a file where a folder is expected: move it away, or choose another path",
    errno.EISDIR: "there is a folder where a file is expected: move it away, or choose another path",
    errno.ENAMETOOLONG: "the name is longer than the file system allows: choose a shorter one",
    errno.ELOOP: "its symbolic links form a loop: replace them with the file or folder itself",
}


def explain(error: StageError | OSError, place: Path | None) -> StageError:
    """Return the error as a stage error whose message names the path, if need be `place`, and the remedy."""
    if isinstance(error, StageError):
        return error
    if error.errno in _FULL:
        return Transient(f"no space is left below {place}: free some space and run the stage again (nothing was kept)")
    path = place if error.filename is None else error.filename
    if error.errno == errno.EROFS:  # the kernel mounts a disk that has had an error read-only
        return Transient(
            f"{shorten(str(path))}: the file system is read-only: mount it with write access, or choose another path"
        )
    if error.errno in _LASTING:
        return BadInput(f"{shorten(str(path))}: {_LASTING[error.errno].format(user=os.getuid())}")
    return Transient(f"{error}; nothing was kept")
