"""Tables of every type that Parquet holds, with nulls and extremes, as a seed makes them."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400 * 10**9
ZONES = (None, "UTC", "Europe/Berlin", "-09:30", "Mars/Phobos")
TEXTS = ("", "a", " ", "007", "=1+1", 'a "b",\n\t;', "caf\u00e9 \U0001f600\u2028", "NaN", "null", "x" * 300, "\ufeff")
_DEPTH = 3  # levels of nesting
#: Types whose dictionaries pyarrow reads as numbers, or writes with other values.
_BROKEN = (*map(pa.duration, NANOSECONDS), pa.float16())
Draw = Callable[[Random], Any]
Leaf = tuple[pa.DataType, Draw]


def among(*values: Any) -> Draw:
    """One of these values."""
    return lambda random: random.choice(values)


def between(low: int, high: int) -> Draw:
    """A limit, a number next to zero, or any integer between the limits."""
    near = [value for value in (low, low + 1, -1, 0, 1, high - 1, high) if low <= value <= high]
    return lambda random: random.choice(near) if random.random() < 0.6 else random.randint(low, high)


def decimal(digits: int, scale: int) -> Draw:
    """A number of at most these digits."""
    draw = between(1 - 10**digits, 10**digits - 1)
    return lambda random: Decimal(str(draw(random)) + f"e-{scale}")


def _integers() -> list[Leaf]:
    kinds = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    bits = {kind: kind.bit_width - (not str(kind).startswith("u")) for kind in kinds}
    return [(kind, between(0 if str(kind).startswith("u") else -(2**most), 2**most - 1)) for kind, most in bits.items()]


def _floats() -> list[Leaf]:
    special = among(math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, 0.1)
    doubles = among(5e-324, 1.7976931348623157e308, 1e22, 123456789.123)
    return [
        (pa.float16(), special),
        (pa.float32(), lambda random: special(random) if random.random() < 0.5 else random.gauss(0, 1e20)),
        (pa.float64(), lambda random: special(random) if random.random() < 0.5 else doubles(random)),
    ]


def _times() -> list[Leaf]:
    """Times of all units. A Parquet file has no seconds: it has milliseconds instead."""
    whole = between(-(2**63) + 1, 2**63 - 1)
    found: list[Leaf] = [(pa.duration(unit), whole) for unit in NANOSECONDS]
    found += [
        (pa.timestamp(unit, zone), whole if unit != "s" else between(-(2**63) // 1000 + 1, (2**63 - 1) // 1000))
        for unit in NANOSECONDS
        for zone in ZONES
    ]
    for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        found.append((kind, between(0, DAY // NANOSECONDS[kind.unit] - 1)))
    days = between(-(2**31), 2**31 - 1)
    found += [(pa.date32(), days), (pa.date64(), lambda random: days(random) * 86_400_000)]
    return found


def _others() -> list[Leaf]:
    texts, data = among(*TEXTS), among(b"", b"\xff\0", b"text", bytes(range(256)))
    found: list[Leaf] = [(kind, texts) for kind in (pa.string(), pa.large_string(), pa.string_view())]
    found += [(kind, data) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())]
    found += [(pa.binary(3), among(b"\0\0\0", b"abc", b"\xff" * 3)), (pa.bool_(), among(True, False))]
    sizes = (
        (pa.decimal32, 9, 2), (pa.decimal64, 18, 18), (pa.decimal128, 38, 0), (pa.decimal128, 38, 38),
        (pa.decimal128, 5, 1), (pa.decimal256, 76, 30),
    )  # fmt: skip
    found += [(make(digits, scale), decimal(digits, scale)) for make, digits, scale in sizes]
    found += [(pa.uuid(), lambda random: uuid.UUID(int=random.getrandbits(128)).bytes)]
    tensor = pa.fixed_shape_tensor(pa.float32(), [2])
    found += [(pa.bool8(), among(0, 1)), (tensor, lambda random: [random.random(), -0.0])]
    found += [(pa.json_(), among('{"a": 1}', "[]")), (pa.opaque(pa.binary(), "a", "b"), data)]
    return found


LEAVES: list[Leaf] = [(pa.null(), among(None)), *_integers(), *_floats(), *_times(), *_others()]


def leaf(random: Random, rows: int, one: Leaf, nulls: float = 0.2) -> pa.Array:
    """A column of a type that is not nested, sometimes with a dictionary."""
    kind, draw = one
    values = [None if random.random() < nulls else draw(random) for _ in range(rows)]
    column = pa.array(values, kind)
    return column.dictionary_encode() if _may_have_dictionary(kind) and random.random() < 0.3 else column


def _may_have_dictionary(kind: pa.DataType) -> bool:
    """Whether pyarrow makes one and writes it without changing a value."""
    of_none = (pa.null(), pa.string_view(), pa.binary_view(), pa.decimal32(9, 2), pa.decimal64(18, 18))
    return not (isinstance(kind, pa.BaseExtensionType) or kind in of_none or kind in _BROKEN)


def column(random: Random, rows: int, depth: int = _DEPTH) -> pa.Array:
    """A column of any type."""
    make = random.choice([_list, _list_view, _fixed, _struct, _map]) if depth and random.random() < 0.5 else None
    if make is not None:
        return make(random, rows, depth - 1)
    views = (pa.string_view(), pa.binary_view()) if depth < _DEPTH else ()  # pyarrow does not write all nested ones
    return leaf(random, rows, random.choice([one for one in LEAVES if one[0] not in views]))


def _offsets(random: Random, rows: int) -> list[int]:
    found = [0]
    for _ in range(rows):
        found.append(found[-1] + random.choice((0, 0, 1, 2, 3)))
    return found


def _mask(random: Random, rows: int) -> pa.Array:
    return pa.array([random.random() < 0.2 for _ in range(rows)], pa.bool_())


def _list(random: Random, rows: int, depth: int) -> pa.Array:
    offsets, large = _offsets(random, rows), random.random() < 0.3
    items, kind = column(random, offsets[-1], depth), pa.LargeListArray if large else pa.ListArray
    return kind.from_arrays(pa.array(offsets, pa.int64() if large else pa.int32()), items, mask=_mask(random, rows))


def _list_view(random: Random, rows: int, depth: int) -> pa.Array:
    offsets, large = _offsets(random, rows), random.random() < 0.3
    items, number = column(random, offsets[-1], depth), pa.int64() if large else pa.int32()
    sizes = pa.array(np.diff(offsets), number)
    kind = pa.LargeListViewArray if large else pa.ListViewArray
    return kind.from_arrays(pa.array(offsets[:-1], number), sizes, items, mask=_mask(random, rows))


def _fixed(random: Random, rows: int, depth: int) -> pa.Array:
    size = random.choice((1, 2, 3))
    return pa.FixedSizeListArray.from_arrays(column(random, rows * size, depth), size, mask=_mask(random, rows))


def _struct(random: Random, rows: int, depth: int) -> pa.Array:
    names = random.choice((["a"], ["a", "b"], ["a.b", "list", "\u00e9"], ["0", "element"], ["key", "value"]))
    return pa.StructArray.from_arrays([column(random, rows, depth) for _ in names], names, mask=_mask(random, rows))


def _map(random: Random, rows: int, depth: int) -> pa.Array:
    offsets = _offsets(random, rows)
    kinds = [one for one in LEAVES if one[0] in (pa.string(), pa.int32(), pa.date32(), pa.timestamp("us"))]
    keys, items = leaf(random, offsets[-1], random.choice(kinds), nulls=0), column(random, offsets[-1], depth)
    places: list[int | None] = [None if random.random() < 0.2 else at for at in offsets[:-1]]  # null where it starts
    return pa.MapArray.from_arrays(pa.array([*places, offsets[-1]], pa.int32()), keys, items)


def table(random: Random, rows: int, columns: int = 6) -> pa.Table:
    """A table of any columns, whose names are numbers and the like."""
    names = ["0", "1.5", "a.b", " ", "a", "\u00e9 \U0001f600", 'say "no", \t`\u2028', "list"]
    return pa.table({name: column(random, rows) for name in random.sample(names, columns)})


def write(table: pa.Table, file: Path, random: Random) -> None:
    """Write a table as a program may do, in several row groups and with or without dictionaries and statistics."""
    pq.write_table(
        table, file,
        row_group_size=random.choice((1, 3, 1000)),
        compression=random.choice(("snappy", "zstd", "gzip", "none")),
        version=random.choice(("1.0", "2.4", "2.6")) if _holds_old(table) else "2.6",
        data_page_version=random.choice(("1.0", "2.0")),
        use_dictionary=random.random() < 0.5,
        write_statistics=random.random() < 0.5,
        use_compliant_nested_type=random.random() < 0.5,
    )  # fmt: skip


def _holds_old(table: pa.Table) -> bool:
    return not any(word in str(table.schema) for word in ("ns", "uint32", "dictionary"))


def exact(value: pa.Scalar) -> Any:
    """A value without a rest: times as nanoseconds, dates as days, floating-point numbers as bits, texts as bytes."""
    kind = value.type
    if not value.is_valid:
        return None
    if isinstance(value, pa.ExtensionScalar) or pa.types.is_dictionary(kind):
        return exact(value.value)
    if pa.types.is_date(kind):
        return value.value // (1 if pa.types.is_date32(kind) else 86_400_000)
    if pa.types.is_temporal(kind):
        return value.value * NANOSECONDS[kind.unit]
    if pa.types.is_floating(kind):
        number = float(value.as_py())
        return "nan" if math.isnan(number) else pack(">d", number)
    if isinstance(value, pa.ListScalar):  # of all kinds, and maps
        return [exact(one) for one in value.values]
    if pa.types.is_struct(kind):
        return [exact(value[at]) for at in range(kind.num_fields)]
    return value.as_buffer().to_pybytes() if hasattr(value, "as_buffer") else value.as_py()


def exact_rows(table: pa.Table) -> list[list[Any]]:
    """The rows of a table, each with its values as `exact` has them."""
    return [[exact(column[row]) for column in table.columns] for row in range(len(table))]
