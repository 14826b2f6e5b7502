"""The one way in which the users' Parquet files are read: what is in them comes out, or the file is refused."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.stages import BadInput
from tasks.sources import limits
from tasks.sources.parquet import UserParquet


def read(path: Path, columns: list[str] | None = None) -> pa.Table:
    with UserParquet(path) as file:
        return pa.Table.from_batches(file.batches(columns))


def int96(path: Path, **columns: pa.Array) -> Path:
    """Write times as Spark, Hive and Impala do."""
    pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=True)
    return path


FAR = [datetime(9999, 12, 31), datetime(1, 1, 1), datetime(1582, 10, 4, 1, 2, 3, 456789), None, datetime(1970, 1, 1)]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_int96_does_not_wrap(tmp_path: Path, zone: str | None) -> None:
    times: pa.Array = pa.array(FAR, pa.timestamp("us"))
    lists = pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], times)
    path = int96(tmp_path / "a.parquet", t=pa.array(FAR, pa.timestamp("us", zone)), some=lists)
    table = read(path)
    assert table["t"].to_pylist() == FAR and table["some"].to_pylist() == [[time] for time in FAR]
    assert read(path, ["some"]).column_names == ["some"]


def test_int96_keeps_nanoseconds_where_they_fit(tmp_path: Path) -> None:
    times = pa.array([1, -(10**18) - 1, None, 0], pa.timestamp("ns"))
    assert read(int96(tmp_path / "a.parquet", t=times))["t"].combine_chunks().equals(times)


def test_int96_with_nanoseconds_and_far_times_is_refused(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"far": pa.array(FAR[:1], pa.timestamp("us")), "fine": pa.array([1], pa.timestamp("ns"))}
    path = int96(tmp_path / "a.parquet", **columns)
    with pytest.raises(BadInput, match=r"a\.parquet: the INT96 columns far, fine have nanoseconds in some rows, and"):
        read(path)
    assert read(path, ["far"])["far"].to_pylist() == FAR[:1]  # only the columns that are read have to be looked at
    assert read(path, ["fine"]).schema.types == [pa.timestamp("ns")]


def test_a_column_with_a_dot_is_not_one_within_another(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [{"b": 1}], "a.b": [2]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", ["a.b"]).to_pydict() == {"a.b": [2]}


@pytest.mark.parametrize(("small", "most"), [(100, 4 << 20), (10_000, 10 << 20)])  # the large rows have 5 MiB
def test_a_few_large_rows_among_small_ones_are_not_in_memory_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int, most: int
) -> None:
    monkeypatch.setattr(limits, "BYTES", 1 << 16)
    texts = [chr(97 + at) * (1 << 18) for at in range(20)] + ["x"] * small
    pq.write_table(pa.table({"t": texts}), tmp_path / "a.parquet", write_batch_size=1, data_page_size=1)
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(BadInput, match=r"a\.parquet: row 1 has "):
            read(tmp_path / "a.parquet")
    finally:
        pa.set_memory_pool(before)
    used = pool.max_memory()
    assert used is not None and used < most
