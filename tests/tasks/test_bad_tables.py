"""Tables that are wrong in part: validate, with both engines, and score say which file, which row, and what to do."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from include.artifacts import Artifact
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput, ExitCode, Transient
from tasks.runner import run_stage
from tasks.sources.parquet import UserParquet

FILES = 10
Read = Callable[[Path], Artifact]


@pytest.fixture(params=["process", "spark", "score"])
def read(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, model: Path) -> Read:
    """Read the table at a path: as the train split with one of the engines of validate, or to score it."""
    pq.write_table(table("dev", 20), tmp_path / "dev.parquet")

    def validate(path: Path) -> Artifact:
        data: dict[str, Any] = {"task": "classification", "source": "files", "path": str(tmp_path)}
        data |= {"labels": ["no", "yes"], "train": path.name, "dev": "dev.parquet"}
        experiment = build({"data": data, "runtime": {"engine": request.param}}, "test")
        return run_stage("validate", experiment, Run(tmp_path / "home/runs/one"))

    def score(path: Path) -> Artifact:
        experiment = build({"scoring": {"input": str(path), "model": str(model), "text": "sentence"}}, "test")
        return run_stage("score", experiment, Run(tmp_path / "home/runs/one"))

    return score if request.param == "score" else validate


def table(name: str, rows: int, **columns: Any) -> pa.Table:
    texts = [f"{name} number {row}" for row in range(rows)]
    labels = pa.array([("no", "yes")[row % 2] for row in range(rows)], pa.string())
    return pa.table({"sentence": pa.array(texts, pa.string()), "label": labels, **columns})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of many files, in one of which a test does damage."""
    (tmp_path / "train").mkdir()
    for part in range(FILES):
        pq.write_table(table(f"train {part}", 4), tmp_path / f"train/part-{part:03}.parquet", use_dictionary=False)
    return tmp_path / "train"


def rows_read(artifact: Artifact) -> int:
    result = artifact.manifest.result
    return int(result["rows"]["train"] if artifact.manifest.stage == "validate" else result["rows"])


def test_a_damaged_page_in_one_of_many_files(read: Read, folder: Path) -> None:
    content = bytearray((folder / "part-003.parquet").read_bytes())
    content[4:60] = b"\xff" * 56
    (folder / "part-003.parquet").write_bytes(content)
    with pytest.raises(BadInput, match=r"/part-003\.parquet: the data from row 1 on cannot be read \(.*\): write the"):
        read(folder)


def test_partitions_without_rows_are_no_error(read: Read, folder: Path) -> None:
    pq.write_table(table("none", 0), folder / "part-000.parquet")
    pq.write_table(table("none", 0), folder / "part-005.parquet")
    (folder / "part-009.parquet").write_bytes(b"")
    assert rows_read(read(folder)) == 4 * (FILES - 3)


def test_a_table_without_the_column(read: Read, folder: Path) -> None:
    for file in folder.iterdir():
        pq.write_table(pq.read_table(file).rename_columns(["text", "label"]), file)
    remedy = r"Name the column (in data\.columns|with the text in scoring\.text)"
    with pytest.raises(
        BadInput, match=rf"/part-000\.parquet has no column 'sentence'.*; found: text, label\. {remedy}"
    ):
        read(folder)


def test_one_file_without_the_column(read: Read, folder: Path) -> None:
    pq.write_table(table("x", 4).rename_columns(["text", "label"]), folder / "part-007.parquet")
    with pytest.raises(BadInput, match=r"/part-007\.parquet has (other columns than .*part-000|no column 'sentence')"):
        read(folder)


@pytest.mark.parametrize("kind", [pa.string(), pa.null()])
def test_a_text_column_of_nulls(read: Read, tmp_path: Path, kind: pa.DataType) -> None:
    nulls = table("x", 4).set_column(0, "sentence", pa.nulls(4, kind))
    pq.write_table(nulls, tmp_path / "train.parquet")
    said = ""
    try:
        artifact = read(tmp_path / "train.parquet")
        said = artifact.manifest.message
        assert artifact.manifest.exit_code == ExitCode.BAD_INPUT
    except BadInput as error:
        said = str(error)
    assert (
        "train: quarantine limit: 4 of 4 rows cannot be used (line 1: empty text;" in said
        or "no row that can be scored (4 x no text): correct scoring.input or scoring.text" in said
    )


def test_a_text_column_of_numbers(read: Read, tmp_path: Path) -> None:
    pq.write_table(table("x", 4).set_column(0, "sentence", pa.array(range(4))), tmp_path / "train.parquet")
    with pytest.raises(
        BadInput, match=r"train\.parquet: the column 'sentence' has the type int64, but it must be .*: n"
    ):
        read(tmp_path / "train.parquet")


LONG = [pytest.param(ending, marks=pytest.mark.long) for ending in ("tsv", "jsonl", "parquet")]


@pytest.mark.parametrize("ending", ["csv", *LONG])
def test_a_cell_of_ten_megabytes_is_a_row_like_others(read: Read, tmp_path: Path, ending: str) -> None:
    file, found = tmp_path / f"train.{ending}", table("train", 200).to_pylist()
    found[7]["sentence"] = "good film " * (1 << 20)
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(found), file)
    elif ending == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in found))
    else:
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(found[0]), delimiter="," if ending == "csv" else "\t")
            writer.writeheader()
            writer.writerows(found)
    artifact = read(file)
    assert artifact.manifest.exit_code == 0 and rows_read(artifact) == 200


def test_a_file_that_changes_while_it_is_read(read: Read, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a copy does that still goes on: the file is malformed for a while."""
    opened = UserParquet.__init__

    def change(self: UserParquet, path: Path, *rest: Any) -> None:
        opened(self, path, *rest)
        (folder / "part-008.parquet").write_bytes(b"PAR1 and so on")

    monkeypatch.setattr(UserParquet, "__init__", change)
    with pytest.raises(Transient, match=r"was changed while it was read, so nothing was kept: run .* again"):
        read(folder)
