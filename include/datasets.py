"""Datasets that grow: datasets/<name>/versions.json lists the versions of a dataset.

Each version is an artifact of the stage ingest and never changes. Only the list of versions grows.
"""

from __future__ import annotations

import json
from pathlib import Path

from include.artifacts import locked, write_json
from include.folders import Dropped
from include.stages import BadInput, Transient
from include.text import is_unwritable

#: Suffixes of files that are still being copied.
_UNFINISHED = (".part", ".tmp")


def is_finished(file: Dropped) -> bool:
    """Return whether a file in a drop folder is ready to be read, and has a name that a record can store."""
    ignored = file.name.startswith(".") or file.name.endswith(_UNFINISHED) or is_unwritable(file.name)
    return not ignored and file.is_file()


class Dataset:
    """The version history of a dataset in a home."""

    def __init__(self, root: Path, name: str) -> None:
        self.name, self.folder = name, root / "datasets" / name

    @property
    def file(self) -> Path:
        """The file that lists the versions."""
        return self.folder / "versions.json"

    def versions(self) -> list[str]:
        """Return the artifact keys of all versions, the latest first. Raise BadInput if their file is damaged."""
        if not self.file.is_file():
            return []
        try:
            return [str(version) for version in json.loads(self.file.read_text(encoding="utf-8"))["versions"]]
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f'{self.file} is damaged: write it again as {{"versions": [KEY, ...]}} with keys of artifacts/ingest, '
                "the latest version first (the version.json of each version names its parent)"
            ) from error

    def accept(self, version: str, parent: str) -> None:
        """Make a version the latest, unless the history has it. Raise Transient if its parent no longer is."""
        with locked(self.folder):
            versions = self.versions()
            if version in versions:
                return
            latest = versions[0] if versions else ""
            if latest != parent:
                raise Transient(
                    f"the latest version of the dataset {self.name} changed from {parent or 'nothing'} to "
                    f"{latest or 'nothing'} while {version} was made: run ingest again to add the new rows to it"
                )
            write_json(self.file, {"versions": [version, *versions]})
