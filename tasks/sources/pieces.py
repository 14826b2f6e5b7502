"""Divide files into pieces that are read at the same time, and find out which lines and rows lie before each."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import BinaryIO

from include.stages import BadInput
from tasks.sources import limits
from tasks.sources.compression import is_packed, unpacked
from tasks.sources.parquet import UserParquet
from tasks.sources.parts import Part
from tasks.sources.text_files import Dialect, blank_tail, format_of

SIZE = 1 << 24  # bytes of a piece, approximately
_LINE_END, _CSV_LINE_END = re.compile(rb"\n"), re.compile(rb"\r\n|\r|\n")
_BLOCK = 1 << 20
_LONGEST = 4 * limits.BYTES + _BLOCK  # bytes: no line of fewer characters is longer


@dataclass(frozen=True)
class Piece:
    """A part of a file, and what lies before it: start, stop and before are those of Part.

    Attributes:
        file: the file, as messages name it.
        row: the 0-based number of the first data row in the split.
    """

    file: Path
    start: int = 0
    stop: int | None = None
    before: int = 0
    row: int = 0

    def part(self, stream: BinaryIO) -> Part:
        """Return it as a part of the opened file."""
        return Part(stream, self.start, self.stop, self.before)


@dataclass(frozen=True)
class Count:
    """What is in a piece, from which the numbers of what lies behind it follow.

    Attributes:
        piece: the piece, of a text from the first line that begins in it to the end of the last one.
        lines: the number of its lines or, in Parquet, of its rows.
        rows: the number of its rows, with the header, if filled lines follow.
        filled: the number of its lines up to the last one that is more than separators.
        end: where this line ends.
        blank: the number of rows of separators behind it.
        is_quoted: whether lines may not be rows, so that the file cannot be divided.
    """

    piece: Piece
    lines: int = 0
    rows: int = 0
    filled: int = 0
    end: int | None = None
    blank: int = 0
    is_quoted: bool = False


def about_rows(files: Iterable[Path]) -> int:
    """Estimate the number of rows of files from the first lines of each."""
    rows = 0
    for file in files:
        if format_of(file) == ".parquet":
            with suppress(BadInput), UserParquet(file) as opened:
                rows += sum(some for some, _ in opened.groups)
        else:
            with suppress(BadInput), file.open("rb") as stream:
                lines = unpacked(file, stream).read(_BLOCK).count(b"\n")
                rows += lines * file.stat().st_size // max(stream.tell(), 1)
    return rows


def divide(file: Path, dialect: Dialect) -> Iterator[Piece]:
    """Yield the pieces of a file, each of about SIZE bytes: row groups, ranges in which lines begin, or the file."""
    if format_of(file) == ".parquet":
        yield from _row_groups(file)
    elif not is_packed(file) and (format_of(file) == ".jsonl" or _has_lines(dialect.encoding)):
        end = file.stat().st_size
        for start in range(0, end, SIZE):
            yield Piece(file, start, min(start + SIZE, end))
    else:
        yield Piece(file)


def count(piece: Piece, stream: BinaryIO, dialect: Dialect) -> Count:
    """Count the lines and the rows of a piece of an open file that can be divided."""
    kind = format_of(piece.file)
    if kind == ".parquet":
        with UserParquet(piece.file, piece.part(stream)) as opened:
            rows = sum(rows for rows, _ in opened.groups[piece.start : piece.stop])
        return Count(piece, rows, rows, rows, piece.stop)
    data, start = _whole_lines(piece, stream)
    if kind == ".csv" and b'"' in data:
        return Count(piece, is_quoted=True)
    lines = _lines_in(data, kind)
    found = replace(piece, start=start, stop=start + len(data))
    if kind == ".jsonl":  # blank lines are no rows, wherever they are
        text = data if start else data.removeprefix(codecs.BOM_UTF8)
        rows = sum(bool(line.strip()) for line in text.split(b"\n"))
        return Count(found, lines, rows, lines, found.stop)
    separators = (dialect.delimiter or ("," if kind == ".csv" else "\t")).encode(dialect.encoding) + b"\r\n"
    end = len(data.rstrip(separators))
    if end:  # the rest of its line may have no other bytes
        line_end = (_CSV_LINE_END if kind == ".csv" else _LINE_END).search(data, end)
        end = line_end.end() if line_end else len(data)
    tail = data[end:]
    filled, blank = blank_tail(piece.file, dialect, tail)
    if filled:
        ends = [found.end() for found in (_CSV_LINE_END if kind == ".csv" else _LINE_END).finditer(tail)]
        end += [*ends, len(tail)][filled - 1]
    return Count(found, lines, lines, lines - _lines_in(tail, kind) + filled, start + end, blank)


def number(counts: Sequence[Count], header: int, row: int) -> tuple[list[Piece], int, int]:
    """Number the pieces of a file with 1 or 0 rows of `header`, whose first data row has the number `row`.

    Return the pieces with rows, the number of the next file's first row, and the number of blank rows at the end.
    """
    last = max((at for at, found in enumerate(counts) if found.filled), default=-1)
    pieces, before = [], 0
    for at, found in enumerate(counts[: last + 1]):
        rows, stop = found.rows, found.piece.stop
        if at == last:
            rows, stop = rows - found.lines + found.filled, found.end
        rows -= 0 if at else header
        if rows:
            pieces.append(replace(found.piece, stop=stop, before=before, row=row))
        before, row = before + found.lines, row + rows
    return pieces, row, sum(found.blank for found in counts[max(last, 0) :])


def _row_groups(file: Path) -> Iterator[Piece]:
    with UserParquet(file) as opened:
        groups = opened.groups
    start = total = 0
    for stop, (_, size_of_group) in enumerate(groups, start=1):
        total += size_of_group
        if total >= SIZE or stop == len(groups):
            yield Piece(file, start, stop)
            start, total = stop, 0


def _whole_lines(piece: Piece, stream: BinaryIO) -> tuple[bytes, int]:
    """Return the lines that begin in a range of bytes, and the place of the first one."""
    assert piece.stop is not None
    start = max(piece.start - 1, 0)
    stream.seek(start)
    data = stream.read(piece.stop - start)
    if piece.start:
        first = data.find(b"\n") + 1
        if not first:
            return b"", piece.stop
        data, start = data[first:], start + first
    while data and not data.endswith(b"\n") and len(data) < _LONGEST:  # a longer line is refused when it is read
        block = stream.read(_BLOCK)
        line_end = block.find(b"\n") + 1
        data += block[: line_end or None]
        if not block:
            break
    return data, start


def _lines_in(data: bytes, kind: str) -> int:
    ends = data.count(b"\n")
    if kind == ".csv":  # Python's module csv also takes a lone CR for the end of a line
        ends += data.count(b"\r") - data.count(b"\r\n")
    return ends + bool(data and not data.endswith((b"\n", b"\r") if kind == ".csv" else b"\n"))


@lru_cache
def _has_lines(encoding: str) -> bool:
    """Return whether the lines of a text are divided by the byte of LF, and can be decoded alone."""
    if encoding == "utf-8":
        return True
    every = bytes(range(256))
    pairs = bytes(byte for pair in product(every, every) for byte in pair)
    try:
        single = [bytes([byte]).decode(encoding, "surrogateescape") for byte in every]
        joined = pairs.decode(encoding, "surrogateescape")
    except (ValueError, LookupError):  # of encodings whose characters have several bytes, or that are none of texts
        return False
    return joined == "".join(single[byte] for byte in pairs) and single[:128] == [chr(byte) for byte in range(128)]
