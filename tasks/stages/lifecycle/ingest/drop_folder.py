"""The drop folder: find its new files, and move malformed ones to its subfolder refused/, together with the reason."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from include.artifacts import sha256
from include.datasets import is_finished
from include.folders import Dropped, open_folder, user_path
from include.stages import BadInput, Transient
from include.text import is_unwritable
from tasks import digests

log = logging.getLogger(__name__)

#: Seconds since the last change after which a file counts as completely copied.
_SETTLED = 5.0
#: The same for a malformed file, which may be an incomplete copy, since a copy may pause for longer.
_LEFT_ALONE = 30.0


def drop_folder(name: str) -> Dropped:
    """Return the folder of new files that dataset.drop names."""
    if not name:
        raise BadInput("dataset.drop is not set: name the folder for new files")
    folder = user_path(name)
    if not folder.is_dir():
        raise BadInput(f"dataset.drop {folder} is not a folder: create it, or name the folder for new files")
    return Dropped(folder)


def new_files(folder: Dropped, known: Collection[str]) -> dict[str, str]:
    """Return name to sha256 of the files whose sha256 is not known yet, each content once.

    Hidden and unfinished files (.part, .tmp) are ignored; so are links and files with a name that is not UTF-8, with a
    warning. Raise Transient if a file may still be being copied.
    """
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        if is_unwritable(file.name):
            log.warning("%a is ignored, because its name is not UTF-8: rename it", str(file))
        elif file.is_symlink():
            log.warning("%s is ignored, because it is a link: put the file itself there", file)
        if not is_finished(file):
            continue
        digest = sha256(file)
        if digest not in known and digest not in found.values():
            _check_settled(file)  # follows the reading, so that it detects changes of the file during the reading
            digests.note(file, digest)
            found[file.name] = digest
    return found


def check_left_alone(folder: Dropped, refused: Mapping[str, str]) -> None:
    """Raise Transient if one of the malformed files, with their errors, may be an incomplete copy."""
    for name, reason in refused.items():
        _check_settled(folder / name, _LEFT_ALONE, f" ({reason})")


def _check_settled(file: Dropped, seconds: float = _SETTLED, remark: str = "") -> None:
    age = time.time() - file.stat().st_mtime
    if abs(age) < seconds:
        raise Transient(
            f"{file} was written {max(age, 0):.0f} seconds ago and may still be being copied, so nothing was ingested: "
            f"run ingest again (to avoid the wait, copy to a name that ends in .part, then rename the file){remark}"
        )


def set_aside(file: Dropped, digest: str, reason: str) -> None:
    """Move a malformed file to refused/<first 16 digits of its sha256>/, and write reason.txt next to it.

    A file that is gone or has another sha256 is not moved: another run has moved it, or a person has corrected it.
    """
    if not file.is_file() or sha256(file) != digest:
        return
    target = "refused", digest[:16]
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
    new = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    with os.fdopen(new, "w", encoding="utf-8") as file:
        file.write(text)
