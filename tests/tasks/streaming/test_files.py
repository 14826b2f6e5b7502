"""The files of a folder as rows: each has its place, and none stops the stream."""

from __future__ import annotations

import errno
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.sources import limits
from tasks.sources.table import parquet_chunks
from tasks.streaming import files
from tasks.streaming.files import FileReader, changed_files, rows


def read(file: Path) -> list[dict[str, Any]]:
    return [row for batch in rows(file) for row in batch.to_pylist()]


def reader(folder: Path, settle: float) -> FileReader:
    options = {"folder": str(folder), "log": str(folder.with_name("log")), "files": "9", "partitions": "1"}
    return FileReader({**options, "settle": str(settle)})


def test_a_file_whose_time_lies_in_the_future_is_read_once_it_was_seen_unchanged(tmp_path: Path) -> None:
    file, ahead = tmp_path / "in/a.csv", time.time() + 3e7
    file.parent.mkdir()
    file.write_text("text\ngood film\n")
    os.utime(file, (ahead, ahead))
    source = reader(file.parent, 0.2)
    limit, start = source.getDefaultReadLimit(), source.initialOffset()
    assert source.latestOffset(start, limit) == start
    file.write_text("text\ngood film\nbad film\n")  # it was still being copied
    os.utime(file, (ahead, ahead))
    time.sleep(0.25)
    assert source.latestOffset(start, limit) == start
    time.sleep(0.25)
    assert source.latestOffset(start, limit) == {"files": 1}
    (tmp_path / "log").unlink()
    once = reader(file.parent, 0.2)
    once.prepareForTriggerAvailableNow()
    assert once.latestOffset(start, limit) == {"files": 1}


def test_who_looks_once_waits_for_files_that_have_changed_just_now(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("text\ngood film\n")
    once = reader(tmp_path / "in", 0.5)
    assert once.latestOffset({"files": 0}, once.getDefaultReadLimit()) == {"files": 0}
    once.prepareForTriggerAvailableNow()
    assert once.latestOffset({"files": 0}, once.getDefaultReadLimit()) == {"files": 1}


def test_a_noted_file_that_grows_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.csv", "b.csv", "c.csv"):
        (tmp_path / "in" / name).write_text("text\ngood film\n")
    (tmp_path / "log").write_text('"a.csv"\n')  # an earlier version noted no sizes
    assert len(reader(tmp_path / "in", 0)._look()) == 3
    assert changed_files(tmp_path / "in", tmp_path / "log") == []
    for name in ("a.csv", "c.csv"):
        with (tmp_path / "in" / name).open("a") as stream:
            stream.write("bad film\n")
    (tmp_path / "in/b.csv").unlink()  # nothing is lost
    assert changed_files(tmp_path / "in", tmp_path / "log") == ["c.csv"]
    assert reader(tmp_path / "in", 0)._look() == ["a.csv", "b.csv", "c.csv"]


def test_an_error_that_nobody_thought_of_stops_no_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("text\ngood film\n")

    def failing(*_: object) -> None:
        raise MemoryError("600 MB")

    monkeypatch.setattr(files, "chunks", failing)
    (row,) = read(tmp_path / "a.csv")
    assert row["problem"] == "the file cannot be read (MemoryError('600 MB')): write it again"


def test_rows_of_many_columns_come_in_batches_of_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BYTES", 1 << 16)
    pq.write_table(
        pa.table({f"a column with a long name {at}": [0] * 500 for at in range(100)}), tmp_path / "a.parquet"
    )
    batches = list(rows(tmp_path / "a.parquet"))
    assert sum(map(len, batches)) == 500 and max(batch.nbytes for batch in batches) < 1 << 17


@pytest.mark.parametrize("name", ["A.CSV", "a.Tsv", "a.NDJSON", "a.ndjson", "a.JSONL", "a.Parquet"])
def test_the_case_of_an_ending_does_not_matter(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name == "a.Parquet":
        pq.write_table(pa.table({"text": ['a "good" film']}), file)
    else:
        quoted = {"A.CSV": 'text\n"a ""good"" film"\n', "a.Tsv": 'text\na "good" film\n'}
        file.write_text(quoted.get(name, '{"text": "a \\"good\\" film"}\n'))
    (row,) = read(file)
    assert row["problem"] is None and json.loads(row["row"]) == {"text": 'a "good" film'}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_takes_the_place_of_a_noted_file_is_neither_waited_for_nor_followed(
    tmp_path: Path, name: str, kind: str
) -> None:
    file, secret = tmp_path / "in" / name, tmp_path / "secret.jsonl"
    file.parent.mkdir()
    file.write_text("text\ngood film\n")
    source = reader(file.parent, 0)
    (files,) = source.partitions({"files": 0}, source.latestOffset({"files": 0}, source.getDefaultReadLimit()))
    file.unlink()
    secret.write_text('{"text": "secret"}\n')
    if kind == "link":
        file.symlink_to(secret)
    else:
        {"pipe": os.mkfifo, "folder": os.mkdir}[kind](file)
    (row,) = [row for batch in source.read(files) for row in batch.to_pylist()]
    assert row["row"] is None and "secret" not in row["problem"]
    assert len(reader(file.parent, 0)._look()) == 1  # as the log has it


def test_links_are_not_noted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a.csv").write_text("text\nsecret\n")
    (tmp_path / "in/a.csv").symlink_to(tmp_path / "a.csv")
    assert reader(tmp_path / "in", 0)._look() == []


def dictionary(values: list[str], indices: list[int]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values))


def test_a_value_that_is_written_once_and_meant_often_is_not_in_memory_often(tmp_path: Path) -> None:
    rows, whole = 6000, 1 << 20
    texts = dictionary(["x" * whole, "y"], [0, 1] * (rows // 2))
    lists = pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), texts)
    pairs = pa.StructArray.from_arrays([texts], ["text"])
    maps = pa.MapArray.from_arrays(pa.array(range(rows + 1), pa.int32()), pa.array(map(str, range(rows))), lists)
    table = pa.table({"text": texts, "lists": lists, "pairs": pairs, "maps": maps})
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False)
    chunks = parquet_chunks(tmp_path / "a.parquet")
    assert all(0 < len(next(chunks).rows) <= 64 for _ in range(3))
    assert pa.total_allocated_bytes() < 1 << 28


@pytest.mark.parametrize("name", ["a.parquet", "b.parquet", "c.parquet", "a.jsonl", "a.csv", "a.tsv"])
def test_a_row_that_is_too_large_sets_aside_what_follows_and_nothing_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(limits, "BYTES", 1 << 20)
    file, texts = tmp_path / name, ["good film", "x" * (5 << 20), "bad film"]
    if name == "a.parquet":
        pq.write_table(pa.table({"text": [*texts[:1] * 9, *texts[1:]]}), file)
    elif name == "b.parquet":  # the rows before are in a group of their own
        pq.write_table(pa.table({"text": texts}), file, row_group_size=1)
    elif name == "c.parquet":
        pq.write_table(pa.table({"text": texts[:1] * 9 + [""] * 2, "all": [[""]] * 9 + [texts, [""]]}), file)
    elif name == "a.jsonl":
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    else:
        file.write_text("\n".join(["text", *texts, ""]))
    *before, last = read(file)
    assert before and all(json.loads(row["row"])["text"] == "good film" for row in before)
    assert last["row"] is None and "shorten it" in last["problem"]
    assert last["position"] == before[-1]["position"] + 1


def test_what_follows_unreadable_rows_does_not_take_the_place_of_another_row(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('text,n\ngood,1\nshort\nfilm,2\n"never closed\n')
    found = {row["position"]: row["problem"] for row in read(file)}
    assert list(found) == [2, 4, 3, 5] and "unbalanced quotes" in found[5]


def test_numbers_that_json_does_not_have_are_null_and_the_others_stay(tmp_path: Path) -> None:
    columns = {"text": [math.nan, math.inf], "score": [1.5, 2.5], "list": [[math.nan, 1.0], [2.0]]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert [json.loads(row["row"]) for row in read(tmp_path / "a.parquet")] == [
        {"text": None, "score": 1.5, "list": [None, 1.0]}, {"text": None, "score": 2.5, "list": [2.0]},
    ]  # fmt: skip


def test_texts_that_parquet_takes_for_bytes_are_texts(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([b"ein gr\xc3\xbcner film"])}), tmp_path / "a.parquet")
    assert json.loads(read(tmp_path / "a.parquet")[0]["row"]) == {"text": "ein grüner film"}


def test_other_bytes_are_no_text_and_none_is_lost(tmp_path: Path) -> None:
    image = b"\x89PNG"
    pq.write_table(
        pa.table({"text": ["good film"], "image": [image], "all": [[{"one": image}]]}), tmp_path / "a.parquet"
    )
    there = {"base64": "iVBORw=="}
    assert json.loads(read(tmp_path / "a.parquet")[0]["row"]) == {
        "text": "good film", "image": there, "all": [{"one": there}],
    }  # fmt: skip


def test_a_value_that_cannot_be_read_sets_one_row_aside(tmp_path: Path) -> None:
    values = pa.array([b"gr\xfcn"]).view(pa.string())
    pq.write_table(pa.table({"text": ["good film"], "other": values}), tmp_path / "a.parquet")
    (row,) = read(tmp_path / "a.parquet")
    assert (row["row"], row["position"]) == (None, 1) and row["problem"] == "broken encoding: byte 0xfc is not UTF-8"


def test_a_file_that_is_gone_is_set_aside_but_a_failing_disk_sets_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = read(tmp_path / "gone.csv")
    assert row["problem"] == "[Errno 2] No such file or directory: 'the file'"
    (tmp_path / "a.csv").write_text("text\ngood film\n")

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "chunks", failing)
    with pytest.raises(OSError, match="Input/output error"):
        read(tmp_path / "a.csv")
