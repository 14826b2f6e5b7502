"""Setting a malformed file of the drop folder aside: into its folder refused/, with the reason."""

from __future__ import annotations

import logging
from pathlib import Path

from include.artifacts import sha256

#: The folder inside the drop folder. Nothing looks for new files there.
FOLDER = "refused"

log = logging.getLogger(__name__)


def set_aside(file: Path, digest: str, reason: str) -> None:
    """Move the file to refused/<start of its sha256>/ and write reason.txt beside it.

    A file that is gone, or no longer has the digest, is left alone: another run has moved it, or a person has mended
    it. Where the folder cannot be written, the file stays, and every later run names it again.
    """
    if not file.is_file() or sha256(file) != digest:
        return
    target = file.parent / FOLDER / digest[:16]
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / "reason.txt").write_text(f"{reason}\n", encoding="utf-8")
        file.rename(target / file.name)  # last: whoever finds the file finds the reason
    except OSError as error:
        log.warning("%s cannot be set aside (%s): remove it or mend it, else every run names it again", file, error)
        return
    log.warning("%s now lies in %s: mend it and put it back", file.name, target)
