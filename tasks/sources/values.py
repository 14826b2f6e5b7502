"""Values of Arrow as Python's, or as text where Python has no such value: Arrow reaches further, and is more exact."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400  # seconds
_CYCLE = 146_097  # days in 400 years, after which the calendar repeats
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
    if pa.types.is_map(kind):
        return [(python_value(pair[0], errors), python_value(pair[1], errors)) for pair in value.values]
    if isinstance(value, pa.ListScalar):
        return [python_value(one, errors) for one in value.values]
    if pa.types.is_struct(kind):
        pairs = [(field.name, python_value(value[at], errors)) for at, field in enumerate(kind)]
        return dict(pairs) if len(dict(pairs)) == len(pairs) else pairs
    return _temporal(value) if pa.types.is_temporal(kind) else value.as_py()


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
