"""Reading TSV and CSV byte by byte, so that every line becomes a row or is reported with its number."""

from __future__ import annotations

import codecs
import csv
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from include import paths
from include.stages import BadInput
from tasks.sources.encoding import check_text

_HEAD = 4096  # bytes that are enough to tell what is no UTF-8
_LONGEST_FIELD = 2**31 - 1  # the csv module stops at 131,072 characters by itself


@dataclass(frozen=True, slots=True)
class Row:
    """A line cut into fields.

    Attributes:
        line: 1-based line on which it starts.
        problem: why it cannot be read, "" when it can.
        text: the line itself; what is not UTF-8 in it is replaced.
    """

    line: int
    fields: list[str]
    problem: str
    text: str


def check_file(path: Path) -> None:
    """Raises BadInput when there is no such file, or it is empty, packed or in another encoding."""
    paths.check_file(path, "put the file there, or correct data.path and the file's name")
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if not head:
        raise BadInput(f"{path} is empty: put data into it, or name another file")
    if path.suffix != ".parquet":
        check_text(path, head)


def remarks(path: Path) -> list[str]:
    """What is unusual about a text file and does no harm: a byte order mark, line ends of two kinds in a TSV file.

    CSV files may well have both: their rows end with CRLF (RFC 4180), and a quoted field holds any line end.
    """
    if path.suffix == ".parquet":
        return []
    found = []
    with path.open("rb") as stream:
        if stream.read(3) == codecs.BOM_UTF8:
            found.append(f"{path} starts with a byte order mark, which was left out")
        if path.suffix != ".csv" and len({line.endswith(b"\r\n") for line in stream if line.endswith(b"\n")}) > 1:
            found.append(f"{path} has line ends of two kinds (LF and CRLF), which were taken as the same")
    return found


def read_rows(path: Path) -> Iterator[Row]:
    """All lines of a .csv file (quoting on) or of a TSV file (quoting off), the header included."""
    check_file(path)
    rows = _csv_rows(path) if path.suffix == ".csv" else _tsv_rows(path)
    return _without_blank_tail(rows)


def read_header(path: Path, rows: Iterator[Row], expected: str) -> list[str]:
    """The first row, which names the columns."""
    header = next(rows, None)
    if header is None or header.problem:
        found = header.problem if header else "only blank lines"
        raise BadInput(f"{path} line 1: expected a header with the columns {expected}, found: {found}")
    return header.fields


def _tsv_rows(path: Path) -> Iterator[Row]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            data = line.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                data = data.removeprefix(codecs.BOM_UTF8)
            yield _tsv_row(number, data)


def _tsv_row(number: int, data: bytes) -> Row:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = data.decode("utf-8", errors="replace")
        return Row(number, [], f"broken encoding: byte {data[error.start]:#04x} is not UTF-8", text)
    return Row(number, text.split("\t"), nul_problem(text), text)


def _csv_rows(path: Path) -> Iterator[Row]:
    """Bytes that are not UTF-8 pass the csv module as lone surrogates; only their own row is reported."""
    csv.field_size_limit(_LONGEST_FIELD)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        reader = csv.reader(stream, strict=True)
        start = 1
        try:
            for fields in reader:
                yield _csv_row(start, fields)
                start = reader.line_num + 1
        except csv.Error as error:
            raise BadInput(
                f"{path} line {start}: unbalanced quotes ({error}), so the rows after it cannot be told apart: "
                'write a quote inside a quoted field twice (""), or give a .tsv file, which needs no quotes'
            ) from error


def _csv_row(start: int, fields: list[str]) -> Row:
    text = ",".join(fields)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        shown = text.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")
        return Row(start, [], "broken encoding: not UTF-8", shown)
    return Row(start, fields, nul_problem(text), text)


def nul_problem(text: str) -> str:
    """Why a row with that text cannot be read, "" when it holds no NUL."""
    return "broken encoding: holds a NUL byte" if "\0" in text else ""


def _without_blank_tail(rows: Iterable[Row]) -> Iterator[Row]:
    """Blank lines at the end of a file are no rows; anywhere else they are rows with too few fields."""
    blank: list[Row] = []
    for row in rows:
        if row.text or row.problem:
            yield from itertools.chain(blank, (row,))
            blank.clear()
        else:
            blank.append(row)
