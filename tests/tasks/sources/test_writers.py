"""Tables as pandas and Spark write them: what comes out is, for the same program, what went in."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tasks.sources.parquet import UserParquet
from tasks.spark import place
from tests.tasks.sources.generated import exact_rows


def read(file: Path) -> pa.Table:
    with UserParquet(file) as opened:
        return pa.Table.from_batches(opened.batches(), opened.schema)


def test_pandas(tmp_path: Path) -> None:
    times = pd.to_datetime(["1700-01-01", None, "2026-03-29 02:30:00.000000001"], format="ISO8601")
    frame = pd.DataFrame(
        {
            0: [1, 2, 3], "1.5": pd.array([1, None, 2**53 + 1], dtype="Int64"), "text": ["a", None, ""],
            "string": pd.array(["a", None, "\u2028"], dtype="string"), "flag": pd.array([True, None, False], "boolean"),
            "time": times, "zone": times.tz_localize("UTC").tz_convert("Europe/Berlin"),
            "lasts": pd.to_timedelta(["1ns", None, "-3 days"]), "class": pd.Categorical(["x", None, "y"]),
            "number": pd.Categorical([10, 20, 10]), "month": pd.period_range("2026-01", periods=3, freq="M"),
            "range": pd.interval_range(0, 3), "empty": [[], [], []], "nothing": [[None], [], None],
            "object": [{"a": 1}, {"b": "x"}, None], "bytes": [b"\xff", None, b""], "none": [None] * 3,
        },
        index=pd.Index(["u", "v", "w"], name="id"),
    )  # fmt: skip
    frame.columns = frame.columns.map(str)
    frame.to_parquet(tmp_path / "a.parquet")
    pq.write_table(read(tmp_path / "a.parquet"), tmp_path / "b.parquet")
    before, after = (pq.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert exact_rows(after) == exact_rows(before)
    kinds = [(field.name, field.type) for field in before.schema if not pa.types.is_dictionary(field.type)]
    assert [(field.name, field.type) for field in after.schema if field.name != "class"] == kinds
    assert after.to_pandas()["month"].equals(frame["month"].reset_index(drop=True))


#: Two rows of all types that Spark writes, of which it takes those of intervals for numbers afterwards.
ROWS = """select * from values (
    1Y, 2S, 3, 4L, 1.5F, 1.5D, 12.50BD, cast('9' as decimal(38, 18)), 'a', cast('b' as char(3)), X'FF00', true,
    date'0001-01-01', timestamp'0001-01-01 00:00:00.000001', timestamp_ntz'9999-12-31 23:59:59.999999',
    array(1, null), map('a', 1), named_struct('x', 1, 'y.z', 'b'), array(map('k', timestamp'1500-01-01 00:00:00'))
), (
    null, null, null, null, float('nan'), double('-inf'), null, null, null, null, null, null,
    date'9999-12-31', timestamp'9999-12-31 23:59:59.999999', null, null, null, null, null
) as t(`0`, `1.5`, `a.b`, l, f, d, few, many, s, c, b, t, day, time, clock, list, map, struct, deep)"""


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_spark(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        spark.sql(ROWS).coalesce(1).write.parquet(place(tmp_path / "a"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    [part] = (tmp_path / "a").glob("part-*")
    pq.write_table(read(part), tmp_path / "b.parquet")

    def rows(frame: DataFrame) -> list[str]:
        every = ", ".join(f"cast(`{name}` as string)" for name in frame.columns)
        return [str(row) for row in frame.selectExpr(f"concat_ws('\n', {every})").collect()]

    before, after = (spark.read.parquet(place(tmp_path / name)) for name in ("a", "b.parquet"))
    types = [[(field.name, field.dataType.simpleString()) for field in frame.schema] for frame in (before, after)]
    assert types[0] == types[1] and rows(before) == rows(after)
