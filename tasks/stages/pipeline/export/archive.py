"""The submission zip: without folders, and reproducible byte by byte."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that zip supports; the current time would change the bytes
_UNIX, _READABLE = 3, 0o100644 << 16


def write_archive(archive: Path, files: Mapping[str, bytes]) -> None:
    """Write a zip archive.

    Args:
        archive: The archive to write.
        files: Name to content of the files in the archive.
    """
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, _UNIX, _READABLE
            target.writestr(entry, files[name])
