"""Read TSV and CSV files so that every line becomes a row or is reported with its line number."""

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
from tasks.sources.formats import format_of

_HEAD = 4096  # bytes that are enough to detect another encoding than UTF-8
_LONGEST_FIELD = 2**31 - 1  # the csv module's default is 131,072 characters


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file, split into fields.

    Attributes:
        line: The 1-based line on which the row starts.
        fields: The fields; empty if the row cannot be decoded.
        problem: Why the row cannot be read; "" if it can.
        text: The unparsed row, with replacement characters for bytes that are not UTF-8.
    """

    line: int
    fields: list[str]
    problem: str
    text: str


def check_file(path: Path) -> None:
    """Raise BadInput if the file is missing, empty, compressed or in another encoding than UTF-8."""
    paths.check_file(path, "put the file there, or correct data.path and the file name")
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if not head:
        raise BadInput(f"{path} is empty: add data to it, or name another file")
    if format_of(path) != ".parquet":
        check_text(path, head)


def remarks(path: Path) -> list[str]:
    """Return one sentence for each harmless irregularity: a byte order mark, or mixed line ends in a TSV file.

    Mixed line ends are normal in CSV files: rows end with CRLF (RFC 4180), and a quoted field may contain any line end.
    """
    if format_of(path) == ".parquet":
        return []
    found = []
    with path.open("rb") as stream:
        if stream.read(3) == codecs.BOM_UTF8:
            found.append(f"{path} starts with a byte order mark, which was ignored")
        if format_of(path) != ".csv" and len({line.endswith(b"\r\n") for line in stream if line.endswith(b"\n")}) > 1:
            found.append(f"{path} has two kinds of line ends (LF and CRLF), which were treated as the same")
    return found


def read_rows(path: Path) -> Iterator[Row]:
    """Yield all rows of a .csv file (with quoting) or of a TSV file (without quoting), including the header.

    Raises:
        BadInput: If the file cannot be read as text, or if the quotes of a CSV file are unbalanced.
    """
    check_file(path)
    rows = _csv_rows(path) if format_of(path) == ".csv" else _tsv_rows(path)
    return _without_blank_tail(rows)


def read_header(path: Path, rows: Iterator[Row], expected: str) -> list[str]:
    """Take the first row off the iterator and return it as the names of the columns.

    Args:
        path: The file, for messages.
        rows: All rows of the file.
        expected: The expected columns, for messages.

    Raises:
        BadInput: If the file has no rows, or if the first one cannot be read.
    """
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
    """Parse a CSV file. Bytes that are not UTF-8 pass through the csv module as surrogates; _csv_row reports them."""
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
                f"{path} line {start}: unbalanced quotes ({error}), so the following rows cannot be separated: "
                'double every quote inside a quoted field (""), or use a .tsv file, which needs no quotes'
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
    """Return why a row with this text cannot be read, or "" if it contains no NUL byte."""
    return "broken encoding: contains a NUL byte" if "\0" in text else ""


def _without_blank_tail(rows: Iterable[Row]) -> Iterator[Row]:
    """Drop blank lines at the end of a file. Anywhere else they count as rows with too few fields."""
    blank: list[Row] = []
    for row in rows:
        if row.text or row.problem:
            yield from itertools.chain(blank, (row,))
            blank.clear()
        else:
            blank.append(row)
