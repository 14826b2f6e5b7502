"""How values of every type of a Parquet file read as text or JSON: in labels, in rows set aside, and in streams."""

from __future__ import annotations

import io
import json
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.glue import TASKS
from tasks.encoder.spec import HeadSpec
from tasks.sources.quarantine import Quarantine
from tasks.sources.table import parquet_chunks
from tasks.stages.labeling.score.table import ASIDE, take_in
from tasks.stages.lifecycle.ingest.version import read as ingest_rows
from tasks.streaming.files import rows as stream_rows
from tests.tasks.sources.test_sources import own

pytestmark = pytest.mark.usefixtures("in_pieces")

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


#: The name of a case to two values of a type, and to the same in JSON.
CASES: dict[str, tuple[pa.Array, list[Any]]] = {
    "null": (pa.nulls(2), [None, None]),
    "boolean": (pa.array([True, None]), [True, None]),
    "int8": (pa.array([-128, 127], pa.int8()), [-128, 127]),
    "int64": (pa.array([-(2**63), 2**63 - 1]), [-(2**63), 2**63 - 1]),
    "uint64": (pa.array([2**64 - 1, None], pa.uint64()), [2**64 - 1, None]),
    "half": (pa.array(np.array([1.5, -65504], "f2")), [1.5, -65504.0]),
    "float": (pa.array([1.5, None], pa.float32()), [1.5, None]),
    "double": (pa.array([5e-324, 1.7976931348623157e308]), [5e-324, 1.7976931348623157e308]),
    "infinity": (pa.array([float("inf"), float("-inf")]), [None, None]),  # JSON has no number for it
    "decimal32": (pa.array([Decimal("1.20"), None], pa.decimal32(5, 2)), ["1.20", None]),
    "decimal128": (
        pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38)], pa.decimal128(38)), ["9" * 38, "-" + "9" * 38],
    ),
    "decimal256": (pa.array([Decimal("9" * 76), None], pa.decimal256(76)), ["9" * 76, None]),
    "string": (pa.array(["", 'a "b",\n\u2028\U0001f600']), ["", 'a "b",\n\u2028\U0001f600']),
    "large string": (pa.array(["a", None], pa.large_string()), ["a", None]),
    "string view": (pa.array(["a" * 30, None], pa.string_view()), ["a" * 30, None]),
    "view of bytes": (pa.array([b"\xff" * 30, None], pa.binary_view()), [{"base64": "/" * 40}, None]),
    "list of views": (pa.array([["a"], None], pa.list_(pa.string_view())), [["a"], None]),
    "dictionary": (WORDS, ["a", "b"]),
    "bytes": (pa.array([b"\xff\0", None]), [{"base64": "/wA="}, None]),
    "fixed bytes": (pa.array([b"\xff\0", None], pa.binary(2)), [{"base64": "/wA="}, None]),
    "date": (pa.array([date(9999, 12, 31), date(1, 1, 1)]), ["9999-12-31", "0001-01-01"]),
    "far date": (pa.array([2**31 - 1, -(2**31)], pa.date32()), ["5881580-07-11", "-5877641-06-23"]),
    "time": (pa.array([time(23, 59, 59, 999999), time(0)]), ["23:59:59.999999", "00:00:00"]),
    "fine time": (pa.array([1, 1000], pa.time64("ns")), ["00:00:00.000000001", "00:00:00.000001"]),
    "timestamp": (pa.array(FAR, pa.timestamp("us")), FAR_TEXT),
    "far timestamp": (pa.array(BEYOND, pa.timestamp("us")), BEYOND_TEXT),
    "fine timestamp": (
        pa.array([1, -1], pa.timestamp("ns")),
        ["1970-01-01 00:00:00.000000001", "1969-12-31 23:59:59.999999999"],
    ),
    "zone": (
        pa.array([0, None], pa.timestamp("ms", "Europe/Berlin")), ["1970-01-01 01:00:00+01:00", None],
    ),
    "far zone": (
        pa.array(BEYOND, pa.timestamp("us", "Europe/Berlin")), [f"{text}+00:00" for text in BEYOND_TEXT],
    ),
    "unknown zone": (
        pa.array([0, None], pa.timestamp("ms", "Mars/Phobos")), ["1970-01-01 00:00:00+00:00", None],
    ),
    "duration": (pa.array([timedelta(1), None]), ["1 day, 0:00:00", None]),
    "long duration": (
        pa.array([2**63 - 1, -(2**63) + 1], pa.duration("s")),
        ["9223372036854775807 s", "-9223372036854775807 s"],
    ),
    "list": (pa.array([[1, None], None]), [[1, None], None]),
    "list view": (pa.array([[1], []], pa.list_view(pa.int8())), [[1], []]),
    "fixed list": (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
    "far list": (
        pa.array([BEYOND, None], pa.list_(pa.timestamp("us"))), [BEYOND_TEXT, None],
    ),
    "list of dictionaries": (pa.ListArray.from_arrays([0, 1, 2], WORDS), [["a"], ["b"]]),
    "struct": (struct("a", "b"), [{"a": 0, "b": 1}] * 2),
    "struct of one name": (struct("a", "a"), [[["a", 0], ["a", 1]]] * 2),
    "map": (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())), [[["a", 1]], None]),
    "uuid": (pa.array([ID.bytes, None], pa.uuid()), [str(ID), None]),
    "json": (pa.array(['{"a": 1}', None], pa.json_()), ['{"a": 1}', None]),
}  # fmt: skip
Case = tuple[pa.Array, list[Any]]


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


def test_score_sets_it_aside_as_text(case: Case, file: Path, tmp_path: Path) -> None:
    values, expected = case
    take_in((("a", chunk) for chunk in parquet_chunks(file)), ("sentence",), HEAD, tmp_path)
    aside = [json.loads(line)["row"]["value"] for line in (tmp_path / ASIDE).read_text().split("\n")[:-1]]
    assert [text is None for text in aside] == [not one.is_valid for one in values]
    for text, one in zip(aside, expected, strict=True):
        assert not isinstance(one, str) or text == one[:200]


def test_stream_writes_it_as_json(case: Case, file: Path) -> None:
    found = [json.loads(row) for batch in stream_rows(file) for row in batch.column("row").to_pylist()]
    assert [row["value"] for row in found] == case[1] * 2


def test_validate_and_ingest_take_it_as_a_label(case: Case, file: Path, tmp_path: Path) -> None:
    """Whatever a label is, its row is one: the quarantine says which text is no label of the task."""
    source, expected = own(tmp_path, {"label": "value"}, train=file.name), case[1]
    for record, one in zip(source.records("train"), expected, strict=False):
        assert not isinstance(one, str) or record.label == one
    stream = io.StringIO()
    found = ingest_rows(source, "train", TASKS["SST-2"], 1.0, Quarantine(stream, "train", file.name))
    assert found.read == 4 == len(found.rows) + stream.getvalue().count("\n")
