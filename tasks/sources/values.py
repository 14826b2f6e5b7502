"""Values of Arrow as Python's, or as text where Python has no such value: Arrow reaches further, and is more exact."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.sources.json_row import as_text, written

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400  # seconds
_CYCLE = 146_097  # days in 400 years, after which the calendar repeats
#: Types that pyarrow writes as CSV without changing a value.
_OF_CSV = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_time,
    pa.types.is_string,
    pa.types.is_large_string,
)
_DATED = (pa.types.is_date, pa.types.is_timestamp)
_ROUND = datetime(1973, 1, 1, tzinfo=UTC)  # since then no zone has an offset with seconds, which pyarrow would cut off
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def is_text(kind: pa.DataType) -> bool:
    """Return whether the values of an Arrow type are texts."""
    return any(matches(kind) for matches in _TEXTS)


def python_value(value: pa.Scalar, errors: str = "strict") -> Any:
    """Return a value as Python's own, or else as a text that says the same.

    Dates and timestamps outside of the years 1 to 9999, times with nanoseconds, and very long durations become text.
    Lists become lists, structs dicts, and maps lists of pairs, like structs that have two fields of the same name.
    Text that is not UTF-8 is decoded with `errors`, as by bytes.decode.
    """
    kind = value.type
    if not value.is_valid:
        return None
    if is_text(kind):
        return value.as_buffer().to_pybytes().decode("utf-8", errors)
    if isinstance(value, pa.ExtensionScalar) and not isinstance(value, pa.UuidScalar | pa.Bool8Scalar):
        return python_value(value.value, errors)
    if pa.types.is_map(kind):
        return [(python_value(pair[0], errors), python_value(pair[1], errors)) for pair in value.values]
    if isinstance(value, pa.ListScalar):
        return [python_value(one, errors) for one in value.values]
    if pa.types.is_struct(kind):
        pairs = [(field.name, python_value(value[at], errors)) for at, field in enumerate(kind)]
        return dict(pairs) if len(dict(pairs)) == len(pairs) else pairs
    return _temporal(value) if pa.types.is_temporal(kind) else value.as_py()


def cells(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as pyarrow can write it to CSV: what it would refuse or change is text, if nested as JSON."""
    kind = column.type
    if any(matches(kind) for matches in _OF_CSV) or (any(matches(kind) for matches in _DATED) and _is_near(column)):
        return column
    found = (python_value(value) for value in column)
    return pa.chunked_array([pa.array([None if value is None else _cell(value) for value in found], pa.string())])


def _cell(value: Any) -> str:
    plain = as_text(value) if isinstance(value, bytes) else value
    return written(plain) if isinstance(plain, bool | list | dict) else str(plain)


def _is_near(column: pa.ChunkedArray) -> bool:
    """Return whether Python has all dates and times of a column, and minutes are enough for their offsets."""
    first, last = map(python_value, pc.min_max(column).values())
    if not (isinstance(first, date) and isinstance(last, date)):
        return False
    return not isinstance(first, datetime) or first.tzinfo is None or first >= _ROUND


def _temporal(value: pa.Scalar) -> Any:
    kind = value.type
    if pa.types.is_time(kind):
        whole = _DAY * _PER_SECOND[kind.unit]
        exact = value.value < whole and (kind.unit != "ns" or value.value % 1000 == 0)  # Python drops the rest
        return value.as_py() if exact else _time(value.value, _PER_SECOND[kind.unit])
    with suppress(OverflowError, ValueError, KeyError):  # beyond Python's range or pandas', or in an unknown zone
        return value.as_py()
    count = value.value
    if pa.types.is_duration(kind):
        return f"{count} {kind.unit}"
    if pa.types.is_date(kind):
        return _date(count if pa.types.is_date32(kind) else count // (1000 * _DAY))
    days, rest = divmod(count, _DAY * _PER_SECOND[kind.unit])
    return f"{_date(days)} {_time(rest, _PER_SECOND[kind.unit])}{'+00:00' if kind.tz else ''}"


def _date(days: int) -> str:
    cycles, rest = divmod(days, _CYCLE)
    found = date(1970, 1, 1) + timedelta(rest)
    return f"{found.year + 400 * cycles:04}-{found:%m-%d}"


def _time(count: int, per_second: int) -> str:
    seconds, part = divmod(count, per_second)
    fraction = f".{part:0{len(str(per_second)) - 1}}" if part else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
