"""What an ingest is about to do, settled before it starts: it is the fingerprint that the artifact's key is made of."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from include.artifacts import sha256
from include.datasets import is_finished
from include.paths import user_path
from include.stages import BadInput, Transient
from include.text import is_unwritable

log = logging.getLogger(__name__)

#: Seconds for which a file must have been left alone: whoever copies one writes to it more often.
_SETTLED = 5.0
#: The same for a malformed file: half of one is malformed too, and a copy may pause.
_LEFT_ALONE = 30.0


@dataclass(frozen=True)
class Plan:
    """What a version is made from.

    Attributes:
        parent: the version that it adds to; "" for the first one.
        source: the fingerprint of the experiment's own data, which the first version begins with; "" for later ones.
        files: the new files: name to sha256.
    """

    parent: str
    source: str = ""
    files: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The plan as a fingerprint."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str) -> Self:
        """The plan that a fingerprint says."""
        return cls(**json.loads(text))


def drop_folder(name: str) -> Path:
    """The folder of new files. Raises BadInput when there is none."""
    if not name:
        raise BadInput("dataset.drop is not set: name the folder that new files are put into")
    folder = user_path(name)
    if not folder.is_dir():
        raise BadInput(f"dataset.drop {folder} is no folder: make it, or name the one that new files are put into")
    return folder


def new_files(folder: Path, known: Collection[str]) -> dict[str, str]:
    """The folder's files that are not known by their sha256, each content once: name to sha256.

    Hidden files and those that end in .part or .tmp are not looked at; a file whose name is not UTF-8 is left where it
    is, with a warning. Raises Transient for a file that may still be being copied.
    """
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        if is_unwritable(file.name):
            log.warning("%a is not taken in, because its name is not UTF-8: rename it", str(file))
        if not is_finished(file):
            continue
        digest = sha256(file)
        if digest not in known and digest not in found.values():
            _check_settled(file)  # after its bytes were read: a copy that went on meanwhile has touched it
            found[file.name] = digest
    return found


def check_unchanged(folder: Path, files: dict[str, str]) -> None:
    """Raises Transient when a file is not what the plan says: it was replaced or removed."""
    for name, digest in files.items():
        file = folder / name
        if not file.is_file() or sha256(file) != digest:
            raise Transient(f"{file} was changed while it was read, nothing was taken: run ingest again")


def check_left_alone(folder: Path, refused: Mapping[str, str]) -> None:
    """Raises Transient when a malformed file, given with what is wrong with it, may be half of a good one."""
    for name, reason in refused.items():
        _check_settled(folder / name, _LEFT_ALONE, f" ({reason})")


def _check_settled(file: Path, seconds: float = _SETTLED, remark: str = "") -> None:
    age = time.time() - file.stat().st_mtime
    if abs(age) < seconds:
        raise Transient(
            f"{file} was written {max(age, 0):.0f} seconds ago and may still be being copied, nothing was taken: "
            f"run ingest again (copy under a name that ends in .part, then rename, and nobody has to wait){remark}"
        )
