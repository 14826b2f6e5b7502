"""Texts that are compressed, as the ends of their names say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from include.fields.data import COMPRESSIONS
from include.stages import BadInput

_BLOCK = 1 << 16


def unpacked(path: Path, stream: BinaryIO) -> BinaryIO:
    """Return the content of an open file: a stream that can only be read if the file is compressed, else `stream`."""
    if not is_packed(path):
        return stream
    return cast(BinaryIO, io.BufferedReader(_Unpacked(path, stream), _BLOCK))


def is_packed(path: Path) -> bool:
    """Return whether a file is compressed, as its name says, so that it can only be read from its beginning."""
    return path.suffix.lower() in COMPRESSIONS


class _Unpacked(io.RawIOBase):
    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path, self._codec = path, COMPRESSIONS[path.suffix.lower()]
        self._content = pa.CompressedInputStream(pa.PythonFile(_Borrowed(stream), mode="r"), self._codec)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._content.readinto(buffer))
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the operating system raised it
                raise
            raise BadInput(
                f"{self._path} cannot be unpacked as {self._codec}, as its name says ({error}): write or copy it "
                "again, or correct the name"
            ) from error


class _Borrowed:
    """A stream that stays open when Arrow closes it, which it does as soon as it is no longer used."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self.read = stream.read

    def close(self) -> None:
        pass
