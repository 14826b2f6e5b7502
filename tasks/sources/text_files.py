"""Read TSV and CSV files so that every line becomes a row or is reported with its line number."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from include import folders
from include.fields.data import COMPRESSIONS, TEXT_FORMATS
from include.stages import BadInput
from tasks.sources import limits
from tasks.sources.compression import unpacked
from tasks.sources.parts import Part, decoded

HEAD = 4096  # bytes that are enough to detect another encoding than UTF-8
#: How the problem of a row begins that cannot be decoded.
BROKEN = "broken encoding"
#: The problem of a row of separators only that no other row follows, as spreadsheets leave them.
BLANK = "blank row at the end of the file"
#: The remedy for the most frequent encoding other than UTF-8.
WINDOWS = "if the file is in the encoding of older Windows programs, set data.encoding to cp1252"
_CSV = "save the sheet as CSV in UTF-8"
_NO_TEXT = {
    b"\x1f\x8b\x08": ("gzip", "unpack it (gunzip)"),
    b"BZh91AY&SY": ("bzip2", "unpack it (bunzip2)"),
    b"\xfd7zXZ\0": ("xz", "unpack it (unxz)"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unpack it (unzstd)"),
    b"PK\x03\x04": ("a zip archive or a spreadsheet", f"unpack it, or {_CSV}"),
    b"\xd0\xcf\x11\xe0": ("a spreadsheet", _CSV),
    b"PAR1\x15": ("Parquet", "rename it so that the name ends in .parquet"),
}
_MARKS = {  # UTF-32 comes first, because its byte order mark starts with that of UTF-16
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class Dialect(NamedTuple):
    """How the text files of a source are written."""

    delimiter: str = ""  # a comma in a .csv file, a tab in a .tsv file
    encoding: str = "utf-8"


PLAIN = Dialect()


@dataclass(slots=True)  # frozen, it would take three times as long to make
class Row:
    """A row of a file, split into fields."""

    line: int  # the 1-based line on which the row starts, or its 1-based number
    fields: list[str]  # none if the row cannot be read
    problem: str  # why the row cannot be read; "" if it can
    text: str  # the unparsed row, with replacement characters for bytes that are not UTF-8


def format_of(file: Path) -> str:
    """Return the end of a file's name, such as ".csv", in lower case, without that of a compressed text.

    JSON Lines are ".jsonl", also as ".ndjson".
    """
    suffix = file.suffix.lower()
    if suffix in COMPRESSIONS:
        below = Path(file.stem).suffix.lower()
        suffix = below if below in TEXT_FORMATS else f"{below}{suffix}"
    return ".jsonl" if suffix == ".ndjson" else suffix


def check_file(path: Path, encoding: str = "utf-8") -> None:
    """Raise BadInput if the file is missing, empty, no text or, if it should be UTF-8, in another encoding."""
    folders.check_file(path, "put the file there, or correct data.path and the file name")
    with path.open("rb") as stream:
        head = unpacked(path, stream).read(HEAD)
    if not head:
        raise BadInput(f"{path} is empty: add data to it, or name another file")
    if format_of(path) != ".parquet":
        check_text(path, head, encoding)


def check_text(path: Path, head: bytes, encoding: str = "utf-8") -> None:
    """Raise BadInput if the first few thousand bytes of a file, `head`, are not text in the encoding."""
    for start, (kind, remedy) in _NO_TEXT.items():
        if head.startswith(start):
            end = next((end for end, codec in COMPRESSIONS.items() if codec == kind), "")
            if end and format_of(path) in TEXT_FORMATS and path.suffix.lower() not in COMPRESSIONS:
                remedy += f", or rename it so that the name ends in {path.suffix}{end}"
            raise BadInput(f"{path} is {kind}, not text: {remedy}")
    if not any(head):
        raise BadInput(f"{path} contains NUL bytes instead of text, so it was not written completely: write it again")
    if encoding != "utf-8":
        return
    wide = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "") or _without_mark(head)
    if wide:
        raise BadInput(f"{path} is {wide}, not UTF-8 text: convert it (iconv -f {wide} -t UTF-8), or set data.encoding")


def undecodable(byte: int, encoding: str = "utf-8") -> str:
    """Return the problem of a row with a byte that the encoding lacks."""
    return f"{BROKEN}: byte {byte:#04x} is not {'UTF-8' if encoding == 'utf-8' else encoding}"


def decoding_problem(value: bytes) -> str:
    """Return why a text cannot be decoded, or "" if it can."""
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return undecodable(value[error.start])
    return ""


def nul_problem(text: str) -> str:
    """Return why a row with this text cannot be read, or "" if it contains no NUL byte."""
    return f"{BROKEN}: contains a NUL byte" if "\0" in text else ""


def remarks(path: Path, encoding: str) -> list[str]:
    """Return one sentence for each harmless irregularity: a byte order mark, or mixed line ends in a TSV file."""
    if format_of(path) == ".parquet" or encoding != "utf-8":
        return []
    found = []
    with path.open("rb") as file:
        stream = unpacked(path, file)
        if stream.read(3) == codecs.BOM_UTF8:
            found.append(f"{path} starts with a byte order mark, which was ignored")
        if format_of(path) != ".csv" and len({line.endswith(b"\r\n") for line in stream if line.endswith(b"\n")}) > 1:
            found.append(f"{path} has two kinds of line ends (LF and CRLF), which were treated as the same")
    return found


def read_rows(path: Path, dialect: Dialect = PLAIN, part: Part | None = None) -> Iterator[Row]:
    """Return all rows with the header, of a .csv file with quoting. At the end, rows of separators only are BLANK.

    Of a part of the file, return the header and its own rows.
    """
    if part is None:
        check_file(path, dialect.encoding)
    if part is None or part.stop is None:
        return _without_unnamed_columns(_with_blank_tail(_rows(path, dialect, part), path))
    rows = _rows(path, dialect, part)
    if part.start:
        rows = chain(islice(_rows(path, dialect, Part(part.stream)), 1), rows)
    return _without_unnamed_columns(rows)


def blank_tail(path: Path, dialect: Dialect, lines: bytes) -> tuple[int, int]:
    """Return how many of the last lines of a file are not blank at its end, and how many rows the others are."""
    rows = list(_with_blank_tail(_rows(path, dialect, Part(io.BytesIO(lines))), path))
    blank = sum(row.problem == BLANK for row in rows)
    return len(rows) - blank, blank


def read_header(path: Path, rows: Iterator[Row], expected: str) -> list[str]:
    """Take the first row, which should have the expected columns, off the iterator and return its fields."""
    header = next(rows, None)
    if header is None or header.problem:
        found = header.problem if header else "only blank lines"
        found += f" ({WINDOWS})" if found.startswith(BROKEN) and "UTF-8" in found else ""
        raise BadInput(f"{path} line 1: expected a header with the columns {expected}, found: {found}")
    return header.fields


def _fields_of_empty_line(path: Path) -> int:
    return 0 if format_of(path) == ".csv" else 1


def _rows(path: Path, dialect: Dialect, part: Part | None) -> Iterator[Row]:
    return (_csv_rows if format_of(path) == ".csv" else _tsv_rows)(path, dialect, part)


def _tsv_rows(path: Path, dialect: Dialect, part: Part | None) -> Iterator[Row]:
    for number, line in enumerate(_lines(path, dialect, "\n", part), start=part.before + 1 if part else 1):
        text = line.removesuffix("\n").removesuffix("\r")
        yield _row(number, text.split(dialect.delimiter or "\t"), text, dialect)


def _csv_rows(path: Path, dialect: Dialect, part: Part | None) -> Iterator[Row]:
    csv.field_size_limit(limits.BYTES)  # the default is 131,072 characters
    reader = csv.reader(_lines(path, dialect, "", part), strict=True, delimiter=dialect.delimiter or ",")
    start = first = part.before + 1 if part else 1
    try:
        for fields in reader:
            yield _row(start, fields, ",".join(fields), dialect)
            start = first + reader.line_num
    except csv.Error as error:
        raise BadInput(
            f"{path} line {start}: unbalanced quotes ({error}), so the following rows cannot be separated: "
            'double every quote inside a quoted field (""), or use a .tsv file, which needs no quotes'
        ) from error


def _lines(path: Path, dialect: Dialect, newline: str, part: Part | None) -> Iterator[str]:
    """Yield the lines. Single bytes that cannot be decoded become surrogates, which _row reports."""
    with ExitStack() as stack:
        part = part or Part(stack.enter_context(path.open("rb")))
        encoding = "utf-8-sig" if dialect.encoding == "utf-8" and not part.start else dialect.encoding
        stream = stack.enter_context(decoded(unpacked(path, part.bytes()), encoding, newline))
        try:
            yield from limits.lines(path, stream, part.before)
        except UnicodeDecodeError as error:  # encodings whose characters have several bytes, such as UTF-16
            raise BadInput(f"{path} is not {dialect.encoding} text ({error.reason}): correct data.encoding") from error


def _row(start: int, fields: list[str], text: str, dialect: Dialect) -> Row:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = text.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")
        return Row(start, [], undecodable(ord(text[error.start]) & 0xFF, dialect.encoding), shown)
    return Row(start, fields, nul_problem(text), text)


def _with_blank_tail(rows: Iterator[Row], path: Path) -> Iterator[Row]:
    """Drop empty lines at the end of a file, and mark rows of separators only there. Elsewhere both are rows."""
    tail: list[Row] = []
    for row in rows:
        if row.problem or any(row.fields) or len(row.fields) == 1 > _fields_of_empty_line(path):
            yield from tail
            yield row
            tail.clear()
        else:
            tail.append(row)
    yield from (replace(row, problem=BLANK) for row in tail if len(row.fields) > _fields_of_empty_line(path))


def _without_unnamed_columns(rows: Iterator[Row]) -> Iterator[Row]:
    """Drop the last columns if the header has no names for them, and a row nothing in them."""
    header = next(rows, None)
    if header is None:
        return
    width = len(header.fields)
    named = max((count for count, name in enumerate(header.fields, start=1) if name), default=width)
    yield replace(header, fields=header.fields[:named])
    for row in rows:
        empty = named < width == len(row.fields) and not any(row.fields[named:])
        yield replace(row, fields=row.fields[:named]) if empty else row


def _without_mark(head: bytes) -> str:
    """Return the wide encoding in which the bytes look like text, or "". UTF-16 has a 0 for each Latin character."""
    whole = head[: len(head) // 4 * 4]
    if whole and not any(whole[3::4]) and max(whole[2::4]) <= 0x10:
        return "UTF-32LE"
    if whole and not any(whole[0::4]) and max(whole[1::4]) <= 0x10:
        return "UTF-32BE"
    if head.count(0) <= len(head) / 4:
        return ""
    return "UTF-16LE" if head[1::2].count(0) > head[0::2].count(0) else "UTF-16BE"
