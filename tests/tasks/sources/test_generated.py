"""Whatever a table has is what comes out of every way through the stages, for tables that a seed makes."""

from __future__ import annotations

import base64
import json
import math
import re
import uuid
from decimal import Decimal
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from include.named_experiments import build
from tasks.encoder.spec import HeadSpec
from tasks.inference.parts import part_file
from tasks.scoring.predictions import write_csv
from tasks.sources.parquet import UserParquet
from tasks.sources.table import parquet_chunks
from tasks.stages.labeling.score.files import write_files
from tasks.stages.labeling.score.table import ROWS, Rows, take_in
from tasks.stages.pipeline.predict.stage import _with_kept
from tasks.stages.pipeline.validate.kept_columns import kept_columns
from tasks.staging import Staging
from tasks.streaming.files import rows as stream_rows
from tests.tasks.sources.generated import DAY, NANOSECONDS, exact, exact_rows, table, write

HEAD = HeadSpec("classification", 2, label_names=("no", "yes"))
SEEDS = pytest.mark.parametrize("seed", range(30))
_NO_JSON = ("nan", pack(">d", math.inf), pack(">d", -math.inf))  # as `exact` has them


def made(seed: int) -> tuple[Random, pa.Table]:
    random = Random(seed)
    return random, table(random, random.choice((1, 2, 9, 40)))


def held(kind: pa.DataType) -> pa.DataType:
    """The type with which a column comes out: Parquet has no seconds, and no dates with a time."""
    if pa.types.is_dictionary(kind):  # of whose values pyarrow forgets the zone and the size
        others = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
        inner = others.get(kind.value_type, kind.value_type)
        return held(pa.timestamp(inner.unit, "UTC") if pa.types.is_timestamp(inner) and inner.tz else inner)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(held(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(held(kind.key_type), held(kind.item_type))
    lists = {
        pa.types.is_list: pa.list_, pa.types.is_large_list: pa.large_list,
        pa.types.is_list_view: pa.list_view, pa.types.is_large_list_view: pa.large_list_view,
        pa.types.is_fixed_size_list: lambda items: pa.list_(items, kind.list_size),
    }  # fmt: skip
    if make := next((make for matches, make in lists.items() if matches(kind)), None):
        return make(held(kind.value_type))
    others = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32()}
    seconds = {pa.time32("s"): pa.time32("ms")}
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    return (others | seconds).get(kind, kind)


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are equal but for the names of what lists hold."""
    names = re.compile(r"(?<=<)(item|element): | \('[^']*'\)")
    return names.sub("", str(one)) == names.sub("", str(other))


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    assert found.column_names == expected.column_names
    for field, before in zip(found.schema, expected.schema, strict=True):
        assert same_type(field.type, held(before.type)), (field.type, before.type)
    assert exact_rows(found) == exact_rows(expected)


@SEEDS
def test_the_reader_reads_it_as_it_was_written(seed: int, tmp_path: Path) -> None:
    random, written = made(seed)
    write(written, tmp_path / "a.parquet", random)
    some = random.sample(written.column_names, 2)
    with UserParquet(tmp_path / "a.parquet") as file:
        assert_same(pa.Table.from_batches(file.batches(), file.schema), written)
        assert_same(pa.Table.from_batches(file.batches(some)), written.select(some))


@SEEDS
def test_score_writes_it_as_it_came(seed: int, tmp_path: Path) -> None:
    random, written = made(seed)
    texts = ["good", *(random.choice(("bad", None, " ")) for _ in range(len(written) - 1))]
    write(written.append_column("text", pa.array(texts)), tmp_path / "a.parquet", random)
    for name in ("table", "parts", "out"):
        (tmp_path / name).mkdir()
    chunks = (("a", chunk) for chunk in parquet_chunks(tmp_path / "a.parquet"))
    counts = take_in(chunks, ("text",), HEAD, tmp_path / "table")
    table = Rows.of(Staging(), tmp_path / "table" / ROWS)
    for part in range(2):
        if some := list(table.part(part, 2)):
            pq.write_table(pa.Table.from_batches(some), part_file(tmp_path / "parts", part))
    write_files(build({"scoring": {"input": str(tmp_path / "a.parquet")}}, "test"), tmp_path, tmp_path / "out")
    scored = pq.read_table(tmp_path / "out/scored.parquet")
    rows = [at for at, text in enumerate(texts) if text in ("good", "bad")]
    assert counts.rows == len(rows) and counts.rows_in == len(texts)
    assert exact_rows(scored.drop_columns("text")) == [exact_rows(written)[at] for at in rows]
    assert_same(scored.drop_columns("text").slice(0, 0), written.slice(0, 0))


@SEEDS
def test_stream_writes_it_as_json(seed: int, tmp_path: Path) -> None:
    random, written = made(seed)
    write(written, tmp_path / "a.parquet", random)
    found = [json.loads(row) for batch in stream_rows(tmp_path / "a.parquet") for row in batch["row"].to_pylist()]
    rows = [[from_json(row[field.name], field.type) for field in written.schema] for row in found]
    assert rows == [[without_nan(value) for value in row] for row in exact_rows(written)]


@SEEDS
def test_kept_columns_stand_beside_the_predictions_as_they_came(seed: int, tmp_path: Path) -> None:
    random, written = made(seed)
    write(written, tmp_path / "a.parquet", random)
    numbers = pa.array(range(len(written)))
    kept = kept_columns([tmp_path / "a.parquet"], written.column_names, numbers.to_numpy())
    pq.write_table(kept.add_column(0, "row", numbers), tmp_path / "kept-test.parquet")
    found = pa.table({"row": numbers, "prediction": numbers})
    pq.write_table(_with_kept(tmp_path, found), tmp_path / "predictions.parquet")
    predictions = pq.read_table(tmp_path / "predictions.parquet")
    assert predictions.select(found.column_names).equals(found)
    assert_same(predictions.select(written.column_names), written)
    write_csv(predictions, tmp_path / "predictions.csv", "|")
    sheet = csv.read_csv(
        tmp_path / "predictions.csv",
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(predictions.column_names, pa.string()), null_values=[""],
            strings_can_be_null=True, quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    for field in written.schema:
        expected = [exact(one) for one in written[field.name]]
        values = [from_cell(text, field.type) for text in sheet[field.name].to_pylist()]
        assert values == (list(map(without_nan, expected)) if is_json(field.type) else expected)


def is_json(kind: pa.DataType) -> bool:
    return pa.types.is_nested(kind) or (isinstance(kind, pa.BaseExtensionType) and is_json(kind.storage_type))


def from_cell(text: str | None, kind: pa.DataType) -> Any:
    """The value that a cell of a sheet stands for, as `exact` has it."""
    if text is None:
        return None
    if pa.types.is_dictionary(kind):
        return from_cell(text, kind.value_type)
    if is_json(kind) or text.startswith('{"base64": '):
        return from_json(json.loads(text), kind)
    if pa.types.is_boolean(kind) or kind == pa.bool8():
        return {"true": True, "false": False}[text]
    if pa.types.is_floating(kind):
        number = float(text) if kind == pa.float64() else float(np.float32(text))
        return "nan" if math.isnan(number) else pack(">d", number)
    return int(text) if pa.types.is_integer(kind) else from_text(text, kind)


def without_nan(value: Any) -> Any:
    """A value of `exact` with null for what JSON has no number for."""
    if isinstance(value, list):
        return [without_nan(one) for one in value]
    return None if value in _NO_JSON else value


def from_json(value: Any, kind: pa.DataType) -> Any:
    """The value that a JSON value stands for, as `exact` has it."""
    if value is None:
        return None
    if pa.types.is_dictionary(kind):
        return from_json(value, kind.value_type)
    if pa.types.is_struct(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [from_json(one, field.type) for (_, one), field in zip(pairs, kind, strict=True)]
    if pa.types.is_map(kind):
        return [[from_json(key, kind.key_type), from_json(one, kind.item_type)] for key, one in value]
    if pa.types.is_nested(kind):
        return [from_json(one, kind.value_type) for one in value]
    if isinstance(kind, pa.BaseExtensionType) and kind != pa.uuid():
        return from_json(value, kind.storage_type)
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    if pa.types.is_floating(kind):
        return pack(">d", value)
    return value if isinstance(value, bool | int) else from_text(value, kind)


def from_text(text: str, kind: pa.DataType) -> Any:
    """The value that a text stands for, as `exact` has it."""
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return _days(text)
    if pa.types.is_time(kind):
        return _clock(text)
    if pa.types.is_duration(kind):
        return _duration(text)
    if pa.types.is_timestamp(kind):
        day, _, rest = text.partition(" ")
        clock, sign, zone = re.fullmatch(r"([\d:.]+)(Z|[-+]?)([\d:]*)", rest).groups()  # type: ignore[union-attr]
        shift = _clock(zone if ":" in zone else f"{zone[:2]}:{zone[2:]}") if zone else 0
        return _days(day) * DAY + _clock(clock) + (shift if sign == "-" else -shift)
    return uuid.UUID(text).bytes if kind == pa.uuid() else text.encode()


def _days(text: str) -> int:
    return int(np.datetime64(text, "D").astype(np.int64))


def _clock(text: str) -> int:
    hours, minutes, seconds = [*text.split(":"), "0"][:3]
    whole, _, part = seconds.partition(".")
    return (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 10**9 + int(part.ljust(9, "0"))


def _duration(text: str) -> int:
    if found := re.fullmatch(r"(-?\d+) (\w+)", text):
        return int(found[1]) * NANOSECONDS[found[2]]
    found = re.fullmatch(r"(?:(-?\d+) days?,? \+?)?([\d:.]+)", text)
    assert found is not None, text
    return int(found[1] or 0) * DAY + _clock(found[2])
