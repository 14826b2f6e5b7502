"""Arrow's columns without dictionaries, of which an Arrow file can hold only one for each column, and without views.

`Array.cast` and the functions of pyarrow.compute refuse some nested types, and give broken lists of nulls. So only what
has another type afterwards is made again, level by level.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

_LISTS = (
    (pa.types.is_list, pa.list_, pa.ListArray),
    (pa.types.is_large_list, pa.large_list, pa.LargeListArray),
    (pa.types.is_list_view, pa.list_view, pa.ListViewArray),
    (pa.types.is_large_list_view, pa.large_list_view, pa.LargeListViewArray),
)


def plain_field(field: pa.Field, seconds: pa.DataType) -> pa.Field:
    """Return a field without dictionaries and views of texts and bytes at any depth, and with a type for seconds."""
    return field.with_type(_plain(field.type, seconds))


def _plain(kind: pa.DataType, seconds: pa.DataType) -> pa.DataType:
    if kind == pa.timestamp("s"):
        return seconds
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type, seconds)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):  # pyarrow cannot filter them
        return pa.string() if pa.types.is_string_view(kind) else pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([plain_field(field, seconds) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type, seconds), plain_field(kind.item_field, seconds))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain_field(kind.value_field, seconds), kind.list_size)
    make = next((make for matches, make, _ in _LISTS if matches(kind)), None)
    return kind if make is None else make(plain_field(kind.value_field, seconds))


def as_plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same values with a plain type, which may also have a larger type of texts, or be an extension."""
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        return as_plain(column.dictionary_decode(), kind)
    if not pa.types.is_nested(kind):
        plain = isinstance(kind, pa.BaseExtensionType)
        return pa.ExtensionArray.from_storage(kind, column.cast(kind.storage_type)) if plain else column.cast(kind)
    missing = column.is_null()
    if pa.types.is_struct(kind):
        parts = [as_plain(column.field(at), field.type) for at, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if pa.types.is_map(kind):
        types = (kind.key_type, kind.item_type)
        keys, items = (as_plain(part, one) for part, one in zip(_parts(column), types, strict=True))
        return pa.MapArray.from_arrays(_from_zero(column.offsets), keys, items, type=kind, mask=missing)
    [items] = _parts(column)
    return _list(column, as_plain(items, kind.value_type), kind, missing)


def leaves(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays with the values of a column: the column itself, unless it is nested."""
    if not pa.types.is_nested(column.type):
        yield column
        return
    for part in _parts(column):
        yield from leaves(part)


def _parts(column: pa.Array) -> list[pa.Array]:
    """Return the arrays one level below a nested column."""
    kind = column.type
    if pa.types.is_struct(kind):
        return [column.field(at) for at in range(kind.num_fields)]
    if pa.types.is_fixed_size_list(kind):  # `flatten` would leave out the places of nulls
        return [column.values.slice(column.offset * kind.list_size, len(column) * kind.list_size)]
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        there = pc.sum(pc.list_value_length(column)).as_py()  # pyarrow flattens no extension without values
        return [column.flatten() if there else column.values.slice(0, 0)]
    first, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    values = (column.keys, column.items) if pa.types.is_map(kind) else (column.values,)
    return [part.slice(first, end - first) for part in values]


def _from_zero(offsets: pa.Array) -> pa.Array:
    return pc.subtract(offsets, offsets[0])


def _list(column: pa.Array, items: pa.Array, kind: pa.DataType, missing: pa.Array) -> pa.Array:
    """Return a list of any kind with new items."""
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=missing)
    make = next(make for matches, _, make in _LISTS if matches(kind))
    if make in (pa.ListArray, pa.LargeListArray):
        return make.from_arrays(_from_zero(column.offsets), items, type=kind, mask=missing)
    sizes = pc.list_value_length(column).fill_null(0)
    return make.from_arrays(pc.subtract(pc.cumulative_sum(sizes), sizes), sizes, items, type=kind, mask=missing)
