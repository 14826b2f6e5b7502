"""JSON Lines: every line that is not blank is a row or is set aside, in the order of the files and of their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.stages import BadInput
from tasks.encoder.spec import HeadSpec
from tasks.sources import table
from tasks.stages.labeling.score.json_lines import json_chunks
from tasks.stages.labeling.score.table import ASIDE, Counts, take_in
from tests.tasks.stages.labeling.score.models import rows_of

HEAD = HeadSpec("classification", 2, label_names=("no", "yes"))


def taken(folder: Path, files: dict[str, bytes]) -> tuple[Counts, pa.Table, list[dict[str, Any]]]:
    """The counts, the rows that are kept, and those that are set aside."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    paths = table.table_files(str(folder))
    counts = take_in(json_chunks(paths, ("text",)), ("text",), HEAD, folder)
    aside = [json.loads(line) for line in (folder / ASIDE).read_text(encoding="utf-8").splitlines()]
    assert counts.rows + len(aside) == counts.rows_in
    assert counts.rows_in == sum(bool(line.strip()) for content in files.values() for line in content.split(b"\n"))
    return counts, rows_of(folder), aside


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_rows_come_file_by_file_and_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.sources.limits.ROWS", 7)
    sizes = {"a.jsonl": 5, "b.jsonl": 40, "c.jsonl": 1, "d.jsonl": 0, "e.jsonl": 12}  # Spark would read b first
    files = {
        name: lines(*({"text": f"{name} {row}", "id": row} for row in range(size))) for name, size in sizes.items()
    }
    _, rows, _ = taken(tmp_path / "in", files)
    assert rows["text"].to_pylist() == [f"{name} {row}" for name, size in sizes.items() for row in range(size)]


def test_what_is_no_object_is_set_aside_with_its_file_and_line_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    bad = [b"[]", b"", b'[{"text": "x"}]', b"null", b"  \t\r", b'"x"', b'{"text": "cut', b'{"text": "caf\xe9"}', b"{}"]
    bad += [b'{"text": "half \\ud83d"}', b'{"text": "nul \\u0000"}', b"[" * 100_000]
    good = lines({"text": "good \U0001f600"})
    counts, rows, aside = taken(tmp_path / "in", {"a.jsonl": good, "b.jsonl": b"\xef\xbb\xbf" + good + b"\n".join(bad)})
    assert rows["text"].to_pylist() == ["good \U0001f600"] * 2
    assert {entry["line"]: entry["reason"] for entry in aside} == {
        **dict.fromkeys((2, 4, 5, 7, 8, 13), "not a JSON object"),
        9: "broken encoding: byte 0xe9 is not UTF-8",
        10: "no text",
        11: "broken encoding: contains half of a surrogate pair",
        12: "broken encoding: contains a NUL byte",
    }
    assert {entry["file"] for entry in aside} == {str(tmp_path / "in/b.jsonl")} and counts.rows_in == 12


def test_types_fit_the_values_of_all_files(tmp_path: Path) -> None:
    first: dict[str, Any] = {"text": "x", "whole": 1, "number": 1, "flag": True, "list": [], "more": {"a": None}}
    first |= {"mixed": 1, "none": None, "exact": 2**53 + 1, "huge": 2**70, "empty": {}, "deep": [[1], [True]]}
    first["case"] = {"a": 1, "A": 2}
    second: dict[str, Any] = {"late": 5, **first, "number": 2.5, "list": [1.5], "more": {"b": ["z"]}, "mixed": ["y"]}
    second["exact"] = 0.5
    _, rows, _ = taken(tmp_path / "in", {"a.jsonl": lines(first), "b.jsonl": lines(second)})
    assert {name: rows.schema.field(name).type for name in ("whole", "number", "flag", "none", "late")} == {
        "whole": pa.int64(), "number": pa.float64(), "flag": pa.bool_(), "none": pa.string(), "late": pa.int64(),
    }  # fmt: skip
    assert rows.column_names == [*first, "late"]
    assert rows["list"].to_pylist() == [[], [1.5]] and rows["late"].to_pylist() == [None, 5]
    assert rows["more"].to_pylist() == [{"a": None, "b": None}, {"a": None, "b": ["z"]}]
    texts = {name: rows[name].to_pylist() for name in ("mixed", "exact", "huge", "empty", "deep", "case")}
    assert texts == {
        "mixed": ["1", '["y"]'], "exact": [str(2**53 + 1), "0.5"], "huge": [str(2**70)] * 2, "empty": ["{}"] * 2,
        "deep": ["[[1], [true]]"] * 2, "case": ['{"a": 1, "A": 2}'] * 2,
    }  # fmt: skip
    pq.write_table(rows, tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == rows.to_pylist()


def test_a_value_that_is_nested_very_deeply_is_text(tmp_path: Path) -> None:
    deep = "[" * 200 + "]" * 200
    _, rows, _ = taken(tmp_path / "in", {"a.jsonl": f'{{"text": "x", "deep": {deep}}}'.encode()})
    assert rows["deep"].to_pylist() == [deep]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]\n{}\n", r"no row that can be scored \(1 x not a JSON object, 1 x no text\)"),
        (b"", "the table has no rows, so there is nothing to score: add some, or correct"),
        (b'{"text": 1}\n', "the column 'text' has the type int64, but it must be text"),
        (b'{"text": "x", "ID": 1}\n{"id": 1}\n', "has the columns 'ID' and 'id': rename one of them"),
        (b'{"body": "x"}\n', "has no column 'text'; found: body"),
        ('{"text": "x"}\n'.encode("utf-16"), "is UTF-16, not UTF-8 text"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_a_remedy(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        taken(tmp_path / "in", {"a.jsonl": content})


def test_an_object_that_is_a_map_becomes_text(tmp_path: Path) -> None:
    maps = [{f"user{row}": row} for row in range(300)]
    _, rows, _ = taken(tmp_path / "in", {"a.jsonl": lines(*({"text": "x", "m": one} for one in maps))})
    assert rows["m"].type == pa.string() and [json.loads(one) for one in rows["m"].to_pylist()] == maps


def test_a_table_with_a_column_for_every_row_is_refused(tmp_path: Path) -> None:
    rows = lines(*({"text": "x", f"user{row}": row} for row in range(2001)))
    with pytest.raises(BadInput, match=r"a\.jsonl: the objects up to line 2000 have more than 2,000 different names"):
        taken(tmp_path / "in", {"a.jsonl": rows})
