"""Read TSV and CSV files so that every line becomes a row or is reported with its line number."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TextIO

from include.stages import BadInput
from tasks.sources import limits
from tasks.sources.formats import BROKEN, WINDOWS, check_file, format_of, nul_problem, undecodable

#: The problem of a row of separators only that no other row follows, as spreadsheets leave them.
BLANK = "blank row at the end of the file"


class Dialect(NamedTuple):
    """How the text files of a source are written.

    Attributes:
        delimiter: The character between columns; "": a comma in a .csv file, a tab in a .tsv file.
        encoding: The name of the encoding, as Python knows it.
    """

    delimiter: str = ""
    encoding: str = "utf-8"


PLAIN = Dialect()


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


def remarks(path: Path, encoding: str = "utf-8") -> list[str]:
    """Return one sentence for each harmless irregularity: a byte order mark, or mixed line ends in a TSV file."""
    if format_of(path) == ".parquet" or encoding != "utf-8":
        return []
    found = []
    with path.open("rb") as stream:
        if stream.read(3) == codecs.BOM_UTF8:
            found.append(f"{path} starts with a byte order mark, which was ignored")
        if format_of(path) != ".csv" and len({line.endswith(b"\r\n") for line in stream if line.endswith(b"\n")}) > 1:
            found.append(f"{path} has two kinds of line ends (LF and CRLF), which were treated as the same")
    return found


def read_rows(path: Path, dialect: Dialect = PLAIN) -> Iterator[Row]:
    """Yield all rows of a .csv file (with quoting) or of a TSV file (without quoting), including the header.

    Empty lines at the end of a file are no rows. Rows of separators only at the end have the problem BLANK.
    """
    check_file(path, dialect.encoding)
    is_csv = format_of(path) == ".csv"
    rows = _csv_rows(path, dialect) if is_csv else _tsv_rows(path, dialect)
    return _without_unnamed_columns(_with_blank_tail(rows, 0 if is_csv else 1))


def read_header(path: Path, rows: Iterator[Row], expected: str) -> list[str]:
    """Take the first row off the iterator and return it as the names of the columns."""
    header = next(rows, None)
    if header is None or header.problem:
        found = header.problem if header else "only blank lines"
        found += f" ({WINDOWS})" if found.startswith(BROKEN) and "UTF-8" in found else ""
        raise BadInput(f"{path} line 1: expected a header with the columns {expected}, found: {found}")
    return header.fields


def _tsv_rows(path: Path, dialect: Dialect) -> Iterator[Row]:
    with _open(path, dialect, "\n") as stream:
        for number, line in enumerate(_decoded(path, dialect, stream), start=1):
            text = line.removesuffix("\n").removesuffix("\r")
            yield _row(number, text.split(dialect.delimiter or "\t"), text, dialect)


def _csv_rows(path: Path, dialect: Dialect) -> Iterator[Row]:
    csv.field_size_limit(limits.BYTES)  # the default is 131,072 characters
    with _open(path, dialect, "") as stream:
        reader = csv.reader(_decoded(path, dialect, stream), strict=True, delimiter=dialect.delimiter or ",")
        start = 1
        try:
            for fields in reader:
                yield _row(start, fields, ",".join(fields), dialect)
                start = reader.line_num + 1
        except csv.Error as error:
            raise BadInput(
                f"{path} line {start}: unbalanced quotes ({error}), so the following rows cannot be separated: "
                'double every quote inside a quoted field (""), or use a .tsv file, which needs no quotes'
            ) from error


def _open(path: Path, dialect: Dialect, newline: str) -> TextIO:
    """Open a text file. Bytes that cannot be decoded become surrogates, which _row reports."""
    encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    return path.open(encoding=encoding, errors="surrogateescape", newline=newline)


def _decoded(path: Path, dialect: Dialect, stream: TextIO) -> Iterator[str]:
    try:
        yield from limits.lines(path, stream)
    except UnicodeDecodeError as error:  # encodings whose characters have several bytes, such as UTF-16
        raise BadInput(f"{path} is not {dialect.encoding} text ({error.reason}): correct data.encoding") from error


def _row(start: int, fields: list[str], text: str, dialect: Dialect) -> Row:
    """Return the row that starts on this line, without fields if a byte of it could not be decoded."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = text.encode("utf-8", errors="surrogateescape").decode("utf-8", errors="replace")
        return Row(start, [], undecodable(ord(text[error.start]) & 0xFF, dialect.encoding), shown)
    return Row(start, fields, nul_problem(text), text)


def _with_blank_tail(rows: Iterator[Row], fields_of_empty_line: int) -> Iterator[Row]:
    """Drop empty lines at the end of a file, and mark rows of separators only there. Elsewhere both are rows.

    A CSV file with one column has empty texts as "", which is a row with one field.
    """
    tail: list[Row] = []
    for row in rows:
        if row.problem or any(row.fields) or len(row.fields) == 1 > fields_of_empty_line:
            yield from tail
            yield row
            tail.clear()
        else:
            tail.append(row)
    yield from (replace(row, problem=BLANK) for row in tail if len(row.fields) > fields_of_empty_line)


def _without_unnamed_columns(rows: Iterator[Row]) -> Iterator[Row]:
    """Drop the last columns if the header has no names for them, and a row nothing in them."""
    header = next(rows, None)
    if header is None:
        return
    unnamed = next((at for at, name in enumerate(reversed(header.fields)) if name), 0)
    width = len(header.fields)
    named = width - unnamed
    yield replace(header, fields=header.fields[:named])
    for row in rows:
        empty = unnamed and len(row.fields) == width and not any(row.fields[named:])
        yield replace(row, fields=row.fields[:named]) if empty else row
