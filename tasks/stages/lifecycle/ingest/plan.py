"""The plan of an ingest. It is made before the ingest starts, and is the fingerprint in the artifact's key."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from include.artifacts import Manifest, sha256
from include.datasets import is_finished
from include.folders import Dropped, user_path
from include.stages import BadInput, Transient
from include.text import is_unwritable
from tasks import outside

log = logging.getLogger(__name__)

#: Seconds since the last change after which a file counts as completely copied.
_SETTLED = 5.0
#: The same for a malformed file, which may be an incomplete copy, since a copy may pause for longer.
_LEFT_ALONE = 30.0


@dataclass(frozen=True)
class Plan:
    """The inputs of a version.

    Attributes:
        parent: The version that new rows are added to; "" for the first version.
        source: The fingerprint of the experiment's own data, which the first version starts from; "" for later ones.
        files: Name to sha256 of the new files.
    """

    parent: str
    source: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the plan by which a version was made."""
        return cls(**json.loads(manifest.fingerprint))


def drop_folder(name: str) -> Dropped:
    """Return the folder of new files.

    Args:
        name: The value of dataset.drop.

    Raises:
        BadInput: If the field is not set, or if the folder does not exist.
    """
    if not name:
        raise BadInput("dataset.drop is not set: name the folder for new files")
    folder = user_path(name)
    if not folder.is_dir():
        raise BadInput(f"dataset.drop {folder} is not a folder: create it, or name the folder for new files")
    return Dropped(folder)


def new_files(folder: Dropped, known: Collection[str]) -> dict[str, str]:
    """Find the new files in a folder.

    Hidden files and files that end in .part or .tmp are ignored. So are links and files with a name that is not UTF-8,
    but with a warning.

    Args:
        folder: The drop folder.
        known: The sha256 digests of files that are already part of the dataset.

    Returns:
        Name to sha256; each content only once.

    Raises:
        Transient: If a file may still be being copied.
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
            outside.note(file, digest)
            found[file.name] = digest
    return found


def check_left_alone(folder: Dropped, refused: Mapping[str, str]) -> None:
    """Raise Transient if one of the malformed files may be an incomplete copy.

    Args:
        folder: The drop folder.
        refused: Name of a malformed file to the error.
    """
    for name, reason in refused.items():
        _check_settled(folder / name, _LEFT_ALONE, f" ({reason})")


def _check_settled(file: Dropped, seconds: float = _SETTLED, remark: str = "") -> None:
    age = time.time() - file.stat().st_mtime
    if abs(age) < seconds:
        raise Transient(
            f"{file} was written {max(age, 0):.0f} seconds ago and may still be being copied, so nothing was ingested: "
            f"run ingest again (to avoid the wait, copy to a name that ends in .part, then rename the file){remark}"
        )
