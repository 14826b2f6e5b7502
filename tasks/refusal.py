"""What an error of the operating system means for whoever runs a stage: try again, or mend something first."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from include.stages import BadInput, StageError, Transient
from include.written import shorten

_FULL = (errno.ENOSPC, errno.EDQUOT)
#: What stays wrong however often it is tried: what is to be said of the path.
_LASTING = {
    errno.EACCES: "user {user} may not use it: give that user access, or name another place",
    errno.EPERM: "user {user} may not do that there: give that user access, or name another place",
    errno.EROFS: "the file system is read-only: mount it so that it can be written, or name another place",
    errno.ENOTDIR: "a file stands where a folder belongs: move it away, or name another place",
    errno.EEXIST: "a file stands where a folder belongs: move it away, or name another place",
    errno.EISDIR: "a folder stands where a file belongs: move it away, or name another place",
    errno.ENAMETOOLONG: "the name is longer than the file system allows: take a shorter one",
    errno.ELOOP: "its links lead back to themselves: put the file or folder itself there",
}


def explain(error: StageError | OSError, place: Path | None) -> StageError:
    """The error as one that says how the stage ends, with the path and the remedy; place: where it was at work."""
    if isinstance(error, StageError):
        return error
    if error.errno in _FULL:
        return Transient(f"no space left below {place}: free some and run the stage again; nothing was kept")
    if error.errno in _LASTING:
        path = place if error.filename is None else error.filename
        return BadInput(f"{shorten(str(path))}: {_LASTING[error.errno].format(user=os.getuid())}")
    return Transient(f"{error}; nothing was kept")
