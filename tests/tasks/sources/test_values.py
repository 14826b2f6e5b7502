"""What a user's Parquet file has is what comes out: of validate, data.keep, ingest, score and stream, for every type.

A value is equal afterwards, or it is the same value as text where the output is text, or the file is refused.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from include.glue import TASKS
from include.stages import BadInput
from tasks.encoder.spec import HeadSpec
from tasks.sources.parquet import UserParquet
from tasks.sources.quarantine import Quarantine
from tasks.sources.table import parquet_chunks
from tasks.stages.labeling.score.table import ASIDE, take_in
from tasks.stages.lifecycle.ingest.version import read as ingest_rows
from tasks.stages.pipeline.validate.kept_columns import kept_columns
from tasks.streaming.files import rows as stream_rows
from tests.tasks.sources.test_sources import own
from tests.tasks.stages.labeling.score.models import rows_of

HEAD = HeadSpec("classification", 2, label_names=("no", "yes"))
ID = uuid.UUID("55cf38b8-1a44-4ceb-8b54-40d95c1d05d9")
WORDS = pa.array(["a", "b"]).dictionary_encode()
DAY = 86_400 * 10**6
FAR = [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1)]
FAR_TEXT = ["9999-12-31 23:59:59.999999", "0001-01-01 00:00:00"]
BEYOND = [(datetime.max - datetime(1970, 1, 1)) // timedelta(microseconds=1) + 1, -62_135_596_800_000_001]
BEYOND_TEXT = ["10000-01-01 00:00:00", "0000-12-31 23:59:59.999999"]


def struct(*names: str) -> pa.Array:
    return pa.StructArray.from_arrays([pa.array([at, at]) for at, _ in enumerate(names)], names)


#: The name of a case to two values of a type, to the same in JSON, and whether data.keep can write them as CSV.
CASES: dict[str, tuple[pa.Array, list[Any], bool]] = {
    "null": (pa.nulls(2), [None, None], True),
    "boolean": (pa.array([True, None]), [True, None], True),
    "int8": (pa.array([-128, 127], pa.int8()), [-128, 127], True),
    "int64": (pa.array([-(2**63), 2**63 - 1]), [-(2**63), 2**63 - 1], True),
    "uint64": (pa.array([2**64 - 1, None], pa.uint64()), [2**64 - 1, None], True),
    "half": (pa.array(np.array([1.5, -65504], "f2")), [1.5, -65504.0], True),
    "float": (pa.array([1.5, None], pa.float32()), [1.5, None], True),
    "double": (pa.array([5e-324, 1.7976931348623157e308]), [5e-324, 1.7976931348623157e308], True),
    "infinity": (pa.array([float("inf"), float("-inf")]), [None, None], True),  # JSON has no number for it
    "decimal32": (pa.array([Decimal("1.20"), None], pa.decimal32(5, 2)), ["1.20", None], True),
    "decimal128": (
        pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38)], pa.decimal128(38)), ["9" * 38, "-" + "9" * 38], True,
    ),
    "decimal256": (pa.array([Decimal("9" * 76), None], pa.decimal256(76)), ["9" * 76, None], True),
    "string": (pa.array(["", 'a "b",\n\u2028\U0001f600']), ["", 'a "b",\n\u2028\U0001f600'], True),
    "large string": (pa.array(["a", None], pa.large_string()), ["a", None], True),
    "string view": (pa.array(["a" * 30, None], pa.string_view()), ["a" * 30, None], True),
    "view of bytes": (pa.array([b"\xff" * 30, None], pa.binary_view()), [{"base64": "/" * 40}, None], False),
    "list of views": (pa.array([["a"], None], pa.list_(pa.string_view())), [["a"], None], False),
    "dictionary": (WORDS, ["a", "b"], True),
    "bytes": (pa.array([b"\xff\0", None]), [{"base64": "/wA="}, None], False),
    "fixed bytes": (pa.array([b"\xff\0", None], pa.binary(2)), [{"base64": "/wA="}, None], False),
    "date": (pa.array([date(9999, 12, 31), date(1, 1, 1)]), ["9999-12-31", "0001-01-01"], True),
    "far date": (pa.array([2**31 - 1, -(2**31)], pa.date32()), ["5881580-07-11", "-5877641-06-23"], False),
    "time": (pa.array([time(23, 59, 59, 999999), time(0)]), ["23:59:59.999999", "00:00:00"], True),
    "fine time": (pa.array([1, 1000], pa.time64("ns")), ["00:00:00.000000001", "00:00:00.000001"], True),
    "timestamp": (pa.array(FAR, pa.timestamp("us")), FAR_TEXT, True),
    "far timestamp": (pa.array(BEYOND, pa.timestamp("us")), BEYOND_TEXT, False),
    "fine timestamp": (
        pa.array([1, -1], pa.timestamp("ns")),
        ["1970-01-01 00:00:00.000000001", "1969-12-31 23:59:59.999999999"], True,
    ),
    "zone": (
        pa.array([0, None], pa.timestamp("ms", "Europe/Berlin")), ["1970-01-01 01:00:00+01:00", None], True,
    ),
    "far zone": (
        pa.array(BEYOND, pa.timestamp("us", "Europe/Berlin")), [f"{text}+00:00" for text in BEYOND_TEXT], False,
    ),
    "unknown zone": (
        pa.array([0, None], pa.timestamp("ms", "Mars/Phobos")), ["1970-01-01 00:00:00+00:00", None], False,
    ),
    "duration": (pa.array([timedelta(1), None]), ["1 day, 0:00:00", None], True),
    "long duration": (
        pa.array([2**63 - 1, -(2**63) + 1], pa.duration("s")),
        ["9223372036854775807 s", "-9223372036854775807 s"], True,
    ),
    "list": (pa.array([[1, None], None]), [[1, None], None], False),
    "list view": (pa.array([[1], []], pa.list_view(pa.int8())), [[1], []], False),
    "fixed list": (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None], False),
    "far list": (
        pa.array([BEYOND, None], pa.list_(pa.timestamp("us"))), [BEYOND_TEXT, None], False,
    ),
    "list of dictionaries": (pa.ListArray.from_arrays([0, 1, 2], WORDS), [["a"], ["b"]], False),
    "struct": (struct("a", "b"), [{"a": 0, "b": 1}] * 2, False),
    "struct of one name": (struct("a", "a"), [[["a", 0], ["a", 1]]] * 2, False),
    "map": (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())), [[["a", 1]], None], False),
    "uuid": (pa.array([ID.bytes, None], pa.uuid()), [str(ID), None], False),
    "json": (pa.array(['{"a": 1}', None], pa.json_()), ['{"a": 1}', None], False),
}  # fmt: skip
Case = tuple[pa.Array, list[Any], bool]


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def file(case: Case, tmp_path: Path) -> Path:
    """A table of four rows, two of which have no text and so are set aside by score."""
    whole = pa.chunked_array([case[0], case[0]])
    columns = {"sentence": ["good", "bad", None, " "], "value": whole, "label": ["1", "0", "1", "0"]}
    pq.write_table(pa.table(columns), tmp_path / "train.parquet")
    return tmp_path / "train.parquet"


def plain(column: pa.Array) -> pa.Array:
    """The column without dictionaries and views, which are other ways to store the same values."""
    texts = (WORDS.type, pa.string_view())
    names = {pa.binary_view(): pa.binary(), **dict.fromkeys(texts, pa.string())}
    names |= {pa.list_(kind): pa.list_(pa.string()) for kind in texts}
    return column.cast(names.get(column.type, column.type))


def test_score_keeps_it_and_sets_it_aside_as_text(case: Case, file: Path, tmp_path: Path) -> None:
    values, expected, _ = case
    take_in((("a", chunk) for chunk in parquet_chunks(file)), ("sentence",), HEAD, tmp_path)
    pq.write_table(rows_of(tmp_path), tmp_path / "scored.parquet")
    scored = pq.read_table(tmp_path / "scored.parquet")["value"].combine_chunks()
    assert scored.type == plain(values).type and scored.equals(plain(values))
    aside = [json.loads(line)["row"]["value"] for line in (tmp_path / ASIDE).read_text().split("\n")[:-1]]
    assert [text is None for text in aside] == [not one.is_valid for one in values]
    for text, one in zip(aside, expected, strict=True):
        assert not isinstance(one, str) or text == one[:200]


def test_stream_writes_it_as_json(case: Case, file: Path) -> None:
    found = [json.loads(row) for batch in stream_rows(file) for row in batch.column("row").to_pylist()]
    assert [row["value"] for row in found] == case[1] * 2


def test_data_keep_keeps_it_or_refuses_the_column(case: Case, file: Path) -> None:
    values, _, writable = case
    if not writable:
        with pytest.raises(BadInput, match=r"data\.keep names the column 'value' of type .* another column, or store"):
            kept_columns([file], ["value"], np.arange(2))
        return
    kept = kept_columns([file], ["value"], np.arange(2))
    assert kept["value"].combine_chunks().equals(plain(values))
    sheet = io.BytesIO()
    csv.write_csv(kept, sheet)
    text = str(values.type).startswith(("duration", "halffloat", "decimal32", "decimal256"))  # pyarrow reads none
    options = csv.ConvertOptions(
        column_types={"value": pa.string() if text else kept["value"].type},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parsing = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    back = csv.read_csv(io.BytesIO(sheet.getvalue()), parse_options=parsing, convert_options=options)["value"]
    assert back.equals(kept["value"].cast(back.type))


def test_validate_and_ingest_take_it_as_a_label(case: Case, file: Path, tmp_path: Path) -> None:
    """Whatever a label is, its row is one: the quarantine says which text is no label of the task."""
    source, expected = own(tmp_path, {"label": "value"}, train=file.name), case[1]
    for record, one in zip(source.records("train"), expected, strict=False):
        assert not isinstance(one, str) or record.label == one
    stream = io.StringIO()
    found = ingest_rows(source, "train", TASKS["SST-2"], 1.0, Quarantine(stream, "train", file.name))
    assert found.read == 4 == len(found.rows) + stream.getvalue().count("\n")


def extremes() -> Iterator[tuple[str, pa.DataType]]:
    """Every type that has a time, in every unit, alone and in a list."""
    for unit in ("s", "ms", "us", "ns"):
        for kind in (
            pa.duration(unit),
            *(pa.timestamp(unit, zone) for zone in (None, "UTC", "Europe/Berlin", "-09:30")),
        ):
            yield str(kind), kind
            yield f"list of {kind}", pa.list_(kind)


@pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in extremes()])
def test_the_largest_and_smallest_times_come_through(kind: pa.DataType, tmp_path: Path) -> None:
    """A Parquet file has no seconds: the largest time in it that has them is the largest one with milliseconds."""
    inner = kind.value_type if pa.types.is_list(kind) else kind
    largest = 2**63 - 1 if inner.unit != "s" or pa.types.is_duration(inner) else (2**63 - 1) // 1000
    times: list[Any] = [largest, -largest, 0, None]
    if inner is not kind:
        times = [[one] for one in times]
    table = pa.table({"sentence": ["good", "bad", None, " "], "value": pa.array(times, kind)})
    pq.write_table(table, tmp_path / "a.parquet")
    with UserParquet(tmp_path / "a.parquet") as opened:
        whole = pa.Table.from_batches(opened.batches())
    assert whole["value"].cast(kind).equals(table["value"])
    take_in((("a", chunk) for chunk in parquet_chunks(tmp_path / "a.parquet")), ("sentence",), HEAD, tmp_path)
    assert rows_of(tmp_path)["value"].cast(kind).equals(table["value"].slice(0, 2))
    assert all(batch.column("problem").null_count == len(batch) for batch in stream_rows(tmp_path / "a.parquet"))
