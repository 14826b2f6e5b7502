"""Rows that are JSON objects, and files with one on each line."""

from __future__ import annotations

import base64
import codecs
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.sources import limits
from tasks.sources.compression import unpacked
from tasks.sources.parts import Part
from tasks.sources.text_files import HEAD, check_text, decoding_problem

#: The only field of an object that stands for bytes which are no text.
BYTES = "base64"


@dataclass(frozen=True, slots=True)
class JsonLine:
    """A line of a file: its 1-based number, the values by their columns, why it cannot be read or "", and its bytes."""

    number: int
    values: dict[str, Any]
    problem: str
    data: bytes

    @property
    def text(self) -> str:
        """The line with replacement characters for bytes that are not UTF-8."""
        return self.data.decode("utf-8", "replace")


def read_lines(file: Path, part: Part | None = None) -> Iterator[JsonLine]:
    """Yield the lines of a file, or of a part of it. Blank lines are no rows."""
    with ExitStack() as stack:
        part = part or Part(stack.enter_context(file.open("rb")))
        stream = part.bytes()
        if not part.start:
            if head := unpacked(file, stream).read(HEAD):
                check_text(file, head)
            stream.seek(0)
        lines = limits.lines(file, unpacked(file, stream), part.before)
        for number, line in enumerate(lines, start=part.before + 1):
            data = line if number > 1 else line.removeprefix(codecs.BOM_UTF8)
            if data.strip():
                yield JsonLine(number, *parse(data), data)


def parse(data: bytes) -> tuple[dict[str, Any], str]:
    """Return the values of a row by the names of their columns, or why it cannot be read."""
    if problem := decoding_problem(data):
        return {}, problem
    try:
        row = _DECODER.decode(data.decode("utf-8"))
        if not isinstance(row, dict):
            return {}, "not a JSON object"
        if b"\\ud" in data.lower():
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except _RepeatedKey:
        return {}, "an object has the same key twice"
    except UnicodeEncodeError:
        return {}, "broken encoding: contains half of a surrogate pair"
    except (ValueError, RecursionError):  # writing needs a few levels more than reading
        return {}, "not a JSON object"
    return row, ""


class _RepeatedKey(Exception):
    """An object has two values for one key, of which Python would drop the first."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RepeatedKey
    return found


def _number(text: str) -> float | str:
    """Return a number, or its text if it is larger than any double."""
    return number if math.isfinite(number := float(text)) else text


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number)


def written(row: Any) -> str:
    """Return a row as JSON: dates and the like as text, NaN and infinity as null, and bytes as BYTES says."""
    try:
        return json.dumps(row, ensure_ascii=False, default=as_text, allow_nan=False)
    except ValueError:  # JSON has no NaN
        return json.dumps(_finite(row), ensure_ascii=False, default=as_text, allow_nan=False)


def _finite(value: Any) -> Any:
    """Return the value with null for NaN, which pandas writes for missing texts too, and for infinity."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(value: Any) -> str | dict[str, str]:
    """Return a value that JSON does not have as one that it has."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode("utf-8")  # not every program marks its texts as such, and Parquet then takes them for bytes
    except UnicodeDecodeError:
        return {BYTES: base64.b64encode(value).decode("ascii")}
