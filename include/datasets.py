"""A dataset: datasets/<name>/versions.json names the artifacts of the stage ingest that it went through.

Every version is an artifact of its own and never changes; what changes is which of them is the last one.
"""

from __future__ import annotations

import json
from pathlib import Path

from include.artifacts import locked, write_json
from include.stages import BadInput, Transient
from include.text import is_unwritable

#: How a file's name ends while it is still being copied.
_UNFINISHED = (".part", ".tmp")


def is_finished(file: Path) -> bool:
    """Whether a file of a drop folder is to be taken in.

    Hidden files, .part and .tmp are not. Nor is one whose name is not UTF-8: no record or event can hold that name.
    """
    left_out = file.name.startswith(".") or file.name.endswith(_UNFINISHED) or is_unwritable(file.name)
    return not left_out and file.is_file()


class Dataset:
    """A dataset's history, below datasets/ of a root that also holds artifacts/ and runs/."""

    def __init__(self, root: Path, name: str) -> None:
        self.name, self.folder = name, root / "datasets" / name

    @property
    def file(self) -> Path:
        """The record of the versions."""
        return self.folder / "versions.json"

    def versions(self) -> list[str]:
        """The keys of its artifacts, the last accepted first; none for a dataset that has not begun."""
        if not self.file.is_file():
            return []
        try:
            return [str(version) for version in json.loads(self.file.read_text(encoding="utf-8"))["versions"]]
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f'{self.file} is damaged: write it again, as {{"versions": [KEY, ...]}} with keys of artifacts/ingest, '
                "the last version first (each one's version.json names its parent)"
            ) from error

    def accept(self, version: str, parent: str) -> None:
        """Make a version the last one; nothing, if it is in the history already.

        Raises Transient when `parent`, which it was built on ("": nothing), is no longer the last version.
        """
        with locked(self.folder):
            versions = self.versions()
            if version in versions:
                return
            last = versions[0] if versions else ""
            if last != parent:
                raise Transient(
                    f"the dataset {self.name} went on from {parent or 'nothing'} to {last or 'nothing'} while "
                    f"{version} was made: run ingest again, so that the new rows are added to that"
                )
            write_json(self.file, {"versions": [version, *versions]})
