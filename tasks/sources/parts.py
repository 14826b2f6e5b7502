"""Parts of a file that can be read alone: lines of a text, or row groups of Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple, TextIO


class Part(NamedTuple):
    """A part of an open file, and what lies before it. The whole file has no end."""

    stream: BinaryIO  # of the whole file
    start: int = 0  # the first byte, with which a line begins, or the first row group
    stop: int | None = None  # the end of both
    before: int = 0  # the number of lines in front of it or, in Parquet, of rows

    def bytes(self) -> BinaryIO:
        """Return a stream of its bytes only."""
        self.stream.seek(self.start)
        return self.stream if self.stop is None else io.BytesIO(self.stream.read(self.stop - self.start))


@contextmanager
def decoded(stream: BinaryIO, encoding: str, newline: str) -> Iterator[TextIO]:
    """Yield a stream as text and leave it open. Single bytes that cannot be decoded become surrogates."""
    text = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline=newline)
    try:
        yield text
    finally:
        with suppress(ValueError):  # it is closed already
            text.detach()
