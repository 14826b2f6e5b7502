"""Move malformed files of the drop folder to its subfolder refused/, together with the reason."""

from __future__ import annotations

import logging
from pathlib import Path

from include.artifacts import sha256

#: The subfolder of the drop folder. It is not searched for new files.
FOLDER = "refused"

log = logging.getLogger(__name__)


def set_aside(file: Path, digest: str, reason: str) -> None:
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
    target = file.parent / FOLDER / digest[:16]
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / "reason.txt").write_text(f"{reason}\n", encoding="utf-8")
        file.rename(target / file.name)  # comes last, so that a moved file always has a reason next to it
    except OSError as error:
        log.warning("%s cannot be moved (%s): correct or remove it, or every run will report it again", file, error)
        return
    log.warning("%s was moved to %s: correct it and put it back", file.name, target)
