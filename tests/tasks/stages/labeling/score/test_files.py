"""The files of a scored table, in the table's own format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.named_experiments import build
from tasks.stages.labeling.score.files import write_files
from tasks.stages.labeling.score.table import ASIDE

ROWS: list[dict[str, Any]] = [
    {"text": "=good\u2028", "more": {"a": [1, None]}, "x": float("nan"), "prediction": ["a", "b"]},
    {"text": "gr\u00fcn", "more": None, "x": 0.1, "prediction": []},
]


def written(folder: Path, name: str, content: bytes, rows: list[dict[str, Any]], **prediction: Any) -> dict[str, str]:
    """Write the files of a table of this name and content that was scored in two parts."""
    for part in ("table", "parts", "out"):
        (folder / part).mkdir()
    (folder / name).write_bytes(content)
    (folder / "table" / ASIDE).touch()
    whole = pa.Table.from_pylist(rows)
    for at in range(len(rows)):
        pq.write_table(whole.slice(at, 1), folder / "parts" / f"part-0000{at}.parquet")
    experiment = build({"scoring": {"input": str(folder / name)}, "prediction": prediction}, "test")
    return write_files(experiment, folder, folder / "out")


def test_json_lines_come_back_as_json_lines(tmp_path: Path) -> None:
    files = written(tmp_path, "in.ndjson", b"", ROWS)
    lines = (tmp_path / "out" / files["scored"]).read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == [{**ROWS[0], "x": None}, ROWS[1]] and not lines[-1]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("escape", [False, True])
def test_a_sheet_has_the_byte_order_mark_of_its_table(tmp_path: Path, mark: bytes, escape: bool) -> None:
    rows = [{"text": row["text"], "prediction": row["prediction"]} for row in ROWS]
    files = written(tmp_path, "in.csv", mark + b"text\n", rows, escape_formulas=escape)
    content = (tmp_path / "out" / files["scored"]).read_bytes()
    assert content.startswith(mark + b'"text"')
    sheet = list(csv.DictReader(io.StringIO(content.removeprefix(mark).decode(), newline="")))
    assert [row["text"] for row in sheet] == ["'" * escape + "=good\u2028", "gr\u00fcn"]
    assert [row["prediction"] for row in sheet] == ["a|b", ""]


def test_parquet_comes_back_as_parquet_only(tmp_path: Path) -> None:
    files = written(tmp_path, "in.parquet", b"", ROWS)
    assert list(files) == ["parquet", "aside"]
    assert pq.read_table(tmp_path / "out/scored.parquet").num_rows == 2
