"""Tables of every format are taken in whole: a row is kept with all its columns, or set aside with a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.stages import BadInput
from tasks.encoder.spec import HeadSpec
from tasks.sources import table
from tasks.sources.table import Chunk, table_files
from tasks.stages.labeling.score.table import ASIDE, ROWS, Counts, Rows, take_in
from tasks.staging import Staging
from tests.tasks.stages.labeling.score.models import rows_of

HEAD = HeadSpec("classification", 2, label_names=("no", "yes"))
CSV = b"""id,text,stars
1,"a good film, he said",5
2,,1
3,"a bad
film",2
4,caf\xe9,3
5,too,many,fields
6,\xe2\x80\x8b ,3
7,fine,4
"""


def chunks(file: Path) -> Iterator[tuple[str, Chunk]]:
    return ((file.name, chunk) for chunk in table.chunks(file, "text"))


def taken(file: Path, folder: Path, *texts: str) -> tuple[Counts, list[dict[str, Any]], list[dict[str, Any]]]:
    """The counts, the rows that are kept, and those that are set aside."""
    folder.mkdir()
    counts = take_in(chunks(file), texts or ("text",), HEAD, folder)
    aside = [json.loads(line) for line in (folder / ASIDE).read_text(encoding="utf-8").splitlines()]
    assert counts == Counts.read(folder) and counts.rows + len(aside) == counts.rows_in
    return counts, rows_of(folder).to_pylist(), aside


def test_every_row_of_a_csv_file_is_kept_or_set_aside_with_line_and_reason(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(CSV)
    counts, rows, aside = taken(tmp_path / "in.csv", tmp_path / "out")
    assert [row["id"] for row in rows] == ["1", "3", "7"]
    assert rows[1] == {"id": "3", "text": "a bad\nfilm", "stars": "2"}
    assert {entry["line"]: entry["reason"] for entry in aside} == {
        3: "empty text",
        6: "broken encoding: byte 0xe9 is not UTF-8",
        7: "wrong number of fields: 4 instead of 3",
        8: "empty text",
    }
    assert next(entry for entry in aside if entry["line"] == 3)["row"] == {"id": "2", "text": "", "stars": "1"}
    assert (counts.rows_in, counts.rows, counts.aside) == (7, 3, 4) and counts.reasons["empty text"] == 2


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ('text\ngood\n""\n""\n', {"empty text": 2}),
        ("text,id,\ngood,1,\n,2,\n,,\n,,\n\n", {"empty text": 1, "blank row at the end of the file": 2}),
    ],
)
def test_empty_texts_and_blank_rows_at_the_end_are_counted(tmp_path: Path, text: str, reasons: dict[str, int]) -> None:
    (tmp_path / "in.csv").write_text(text)
    counts, rows, _ = taken(tmp_path / "in.csv", tmp_path / "out")
    assert (counts.rows_in, counts.reasons) == (1 + counts.aside, reasons)
    assert [row["text"] for row in rows] == ["good"] and "" not in rows[0]


def test_a_tsv_file_needs_no_quotes(tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text('text\tid\nsay "no\t1\n')
    assert taken(tmp_path / "in.tsv", tmp_path / "out")[1] == [{"text": 'say "no', "id": "1"}]


def test_columns_of_a_parquet_file_keep_their_types_and_unusable_texts_are_set_aside(tmp_path: Path) -> None:
    broken = pa.array([b"good", None, b"caf\xe9", b"a\0b", b"bad"], pa.binary()).view(pa.string())
    kinds = pa.array(["x", "y", "x", "y", "x"]).dictionary_encode()
    columns = {"id": pa.array(range(5), pa.int32()), "text": broken, "kind": kinds, "more": [[1], [2], [3], [4], None]}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    _, rows, aside = taken(tmp_path / "in.parquet", tmp_path / "out")
    assert rows == [
        {"id": 0, "text": "good", "kind": "x", "more": [1]},
        {"id": 4, "text": "bad", "kind": "x", "more": None},
    ]
    assert [(entry["line"], entry["reason"]) for entry in aside] == [
        (2, "no text"), (3, "broken encoding: byte 0xe9 is not UTF-8"), (4, "broken encoding: contains a NUL byte"),
    ]  # fmt: skip
    assert aside[1]["row"] == {"id": "2", "text": "caf\N{REPLACEMENT CHARACTER}", "kind": "x", "more": "[3]"}
    assert rows_of(tmp_path / "out").schema.field("id").type == pa.int32()


def test_both_texts_of_a_pair_are_needed(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("question,answer\nwhy?,so\nwhy?,\n,so\n")
    counts, rows, _ = taken(tmp_path / "in.csv", tmp_path / "out", "question", "answer")
    assert len(rows) == 1 and counts.reasons == {"empty text": 2}


def test_a_folder_is_one_table_and_parts_hold_each_row_once(staged: Staging, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"text": [f"{number} {row}" for row in range(5)]}), folder / f"p{number}.parquet")
    (folder / "_SUCCESS").touch()
    files = table_files(str(folder))
    (tmp_path / "out").mkdir()
    take_in((pair for file in files for pair in chunks(file)), ("text",), HEAD, tmp_path / "out")
    rows = Rows.of(staged, tmp_path / "out" / ROWS)
    parts = [[text for batch in rows.part(part, 4) for text in batch["text"].to_pylist()] for part in range(4)]
    assert [text for part in parts for text in part] == [f"{number} {row}" for number in range(3) for row in range(5)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("body\nx\n", r"in\.csv has no column 'text'; found: body\. Name the column with the text in scoring\.text"),
        ("text;id\nx;1\n", r"separated by semicolons: use commas in a \.csv file, tabs in a \.tsv file\)$"),
        ("text,Prediction\nx,1\n", "has a column 'Prediction', a name that the predictions need: rename the column"),
        ("text,probability:yes\nx,1\n", "has a column 'probability:yes', a name that"),
        ("text,model_version\nx,1\n", "has a column 'model_version', a name that"),
        ("text,id,ID\nx,1,1\n", "has the columns 'id' and 'ID': rename one of them"),
        ("text\n", "the table has no rows, so there is nothing to score: add some, or correct"),
        ("text,id\n,1\n", r"no row that can be scored \(1 x empty text\): correct"),
        ('text\n"x\n', "unbalanced quotes"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_a_remedy(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(text)
    with pytest.raises(BadInput, match=message):
        taken(tmp_path / "in.csv", tmp_path / "out")


def test_a_text_must_be_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "in.parquet")
    with pytest.raises(BadInput, match="the column 'text' has the type int64, but it must be text"):
        taken(tmp_path / "in.parquet", tmp_path / "out")


def test_a_damaged_parquet_file_is_named_with_the_row(tmp_path: Path) -> None:
    file = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": [f"text {number}" for number in range(500)]}), file, use_dictionary=False)
    whole = bytearray(file.read_bytes())
    whole[4:200] = b"\xff" * 196
    file.write_bytes(whole)
    with pytest.raises(
        BadInput, match=r"(?s)in\.parquet: the data from row 1 on cannot be read .*: write the file again"
    ):
        taken(file, tmp_path / "out")


def test_files_of_other_columns_are_not_one_table(tmp_path: Path) -> None:
    for name, column in (("a", "id"), ("b", "number")):
        (tmp_path / f"{name}.csv").write_text(f"text,{column}\nx,1\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(BadInput, match=r"b\.csv has other columns than the first file of the table"):
        take_in((pair for name in "ab" for pair in chunks(tmp_path / f"{name}.csv")), ("text",), HEAD, tmp_path / "out")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "must all end in one of .* there is no file"),
        (("a.csv", "b.tsv"), r"\.csv, \.tsv$"),
        (("a.xlsx",), r"\.xlsx$"),
    ],
)
def test_a_folder_needs_files_of_one_format(names: tuple[str, ...], message: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(BadInput, match=message):
        table_files(str(tmp_path))


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_empty_part_has_no_rows_but_a_table_has_more_than_empty_parts(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"b.{ending}").touch()
    assert table_files(str(tmp_path)) == [tmp_path / f"b.{ending}"]
    (tmp_path / f"a.{ending}").write_text("text\ngood\n")
    assert table_files(str(tmp_path)) == [tmp_path / f"a.{ending}"]


def test_endings_that_mean_the_same_format_go_together(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.NDJSON", "c.JSONL"):
        (tmp_path / name).touch()
    assert len(table_files(str(tmp_path))) == 3


def test_a_missing_file_is_named() -> None:
    with pytest.raises(BadInput, match=r"nowhere\.csv is missing: correct scoring\.input"):
        table_files("nowhere.csv")


def test_a_text_that_cleaning_empties_is_set_aside_and_the_others_stay_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,id\n<b>Good</b>,1\n<br/>!?,2\n,3\n")
    (tmp_path / "out").mkdir()
    head = replace(HEAD, cleaning=("html", "punctuation"))
    counts = take_in(chunks(tmp_path / "in.csv"), ("text",), head, tmp_path / "out")
    assert counts.reasons == {"empty text after cleaning": 1, "empty text": 1}
    assert rows_of(tmp_path / "out").to_pylist() == [{"text": "<b>Good</b>", "id": "1"}]


def test_files_are_absolute_wherever_the_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").touch()
    assert table_files("in") == [tmp_path / "in/a.csv"] and table_files("in/a.csv") == [tmp_path / "in/a.csv"]
