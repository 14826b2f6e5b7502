"""Tables of Delta Lake and Iceberg as a source: versions, deleted rows, and what is wrong with a table."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from include.experiment import Experiment
from include.fields.labeling import Scoring
from include.glue import SPLITS
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput
from tasks.runner import run_stage
from tasks.sources import Source, open_source
from tasks.sources.describe import describe
from tasks.sources.lake import open_table, scored_table
from tasks.sources.parquet import UserParquet
from tasks.sources.values import is_text
from tests.tasks.sources.lakes import catalog, delete_by_position, delete_by_vector, delta, iceberg, rows

pytestmark = pytest.mark.usefixtures("in_pieces")
COLUMNS = {"sentence": "body", "label": "class"}


def own(kind: str, folder: Path, version: object = "", **data: Any) -> Experiment:
    """The experiment on the table reviews in the folder."""
    place = {"path": str(folder / "reviews")}
    if kind == "iceberg":
        place = {"path": catalog(folder), "table": "prod.shop.reviews"}
    given = {"task": "classification", "source": kind, "labels": ["no", "yes"], "columns": COLUMNS, **place}
    return build({"data": {**given, "version": str(version), **data}}, "mine")


def texts(source: Source) -> set[str]:
    found = [record for split in SPLITS for record in source.records(split)]
    assert sorted(record.row for record in found) == list(range(len(found)))
    return {record.sentences[0] for record in found}


def expected(*numbers: int) -> set[str]:
    return {f"text {number}" for number in numbers}


def test_versions_of_a_delta_table(tmp_path: Path) -> None:
    delta(tmp_path / "reviews", rows(40), rows(20, 40))
    DeltaTable(tmp_path / "reviews").delete("id < 10")
    newest = open_source(own("delta", tmp_path))
    assert newest.version == "2" and texts(newest) == expected(*range(10, 60))
    assert texts(open_source(own("delta", tmp_path, 0))) == expected(*range(40))
    assert {record.file for record in newest.records("dev")} == {f"{tmp_path}/reviews@v2"}
    assert newest.file("train") == f"{tmp_path}/reviews@v2"


def test_snapshots_of_an_iceberg_table(tmp_path: Path) -> None:
    table = iceberg(tmp_path, rows(40), rows(20, 40))
    table.delete("id < 10")
    first, *_, last = (snapshot.snapshot_id for snapshot in table.snapshots())
    newest = open_source(own("iceberg", tmp_path))
    assert newest.version == str(last) and texts(newest) == expected(*range(10, 60))
    assert texts(open_source(own("iceberg", tmp_path, first))) == expected(*range(40))
    assert {record.file for record in newest.records("test")} == {f"prod.shop.reviews@{last}"}


def test_deleted_rows_never_appear(tmp_path: Path) -> None:
    delete_by_vector(delta(tmp_path / "reviews", rows(30)), [0, 7, 29])
    delete_by_position(iceberg(tmp_path, rows(30)), [0, 7, 29])
    for kind in ("delta", "iceberg"):
        assert texts(open_source(own(kind, tmp_path))) == expected(*({*range(30)} - {0, 7, 29}))
    before = open_source(own("delta", tmp_path, 0))
    assert texts(before) == expected(*range(30))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_version_is_part_of_the_fingerprint_and_no_row_is_read_for_it(tmp_path: Path, kind: str) -> None:
    table = iceberg(tmp_path, rows(5))
    delta(tmp_path / "reviews", rows(5))
    first = open_source(own(kind, tmp_path))
    assert open_source(own(kind, tmp_path)).fingerprint() == first.fingerprint()
    assert open_source(own(kind, tmp_path, first.version)).fingerprint() == first.fingerprint()
    delta(tmp_path / "reviews", rows(5))
    table.append(rows(5))
    second = open_source(own(kind, tmp_path))
    assert second.fingerprint() != first.fingerprint() and second.version != first.version
    assert open_source(own(kind, tmp_path, first.version)).fingerprint() == first.fingerprint()
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    assert open_source(own(kind, tmp_path)).fingerprint() == second.fingerprint()
    with pytest.raises(BadInput, match=r"cannot be read .*: if its files were removed, name a later version"):
        list(open_source(own(kind, tmp_path)).records("train"))


def test_rows_are_in_one_order_and_split_like_those_of_files(tmp_path: Path) -> None:
    for part in range(6):
        write_deltalake(tmp_path / "reviews", rows(50, part * 50), mode="append", partition_by=["class"])
    runs = [[record.sentences for record in open_source(own("delta", tmp_path)).records("train")] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2] and len(runs[0]) == 240
    pq.write_table(rows(300), tmp_path / "all.parquet")
    given = {"task": "classification", "source": "files", "path": str(tmp_path / "all.parquet"), "columns": COLUMNS}
    files = open_source(build({"data": {**given, "labels": ["no", "yes"]}}, "mine"))
    for split in SPLITS:
        found = {record.sentences for record in open_source(own("delta", tmp_path)).records(split)}
        assert found == {record.sentences for record in files.records(split)}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_types_are_those_of_parquet(tmp_path: Path, kind: str) -> None:
    table = pa.table(
        {
            "body": ["a", None],
            "day": pa.array([date(1, 1, 1), date(9999, 12, 31)]),
            "time": pa.array([datetime(1, 1, 1), datetime(9999, 12, 31)]).cast(pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("-1.10"), None], pa.decimal128(38, 2)),
            "tags": pa.array([["x", None], None], pa.list_(pa.string())),
            "more": pa.array([{"a": 1, "b": "c"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
            "of": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "bytes": [b"\xff\0", b""],
            "real": pa.array([0.1, float("inf")], pa.float32()),
            "9": [True, None],
        }
    )  # fmt: skip
    delta(tmp_path / "reviews", table)
    iceberg(tmp_path, table)
    data = own(kind, tmp_path).data
    with UserParquet(open_table(kind, data.path, data.table, "").copy(tmp_path)) as file:
        found = pa.Table.from_batches(file.batches())
    assert found.to_pylist() == table.to_pylist()
    for name in ("day", "time", "price", "real", "9"):
        assert found.schema.field(name).type == table.schema.field(name).type
    assert is_text(found.schema.field("body").type)


def wrong(kind: str, folder: Path, version: object = "", **data: Any) -> str:
    with pytest.raises(BadInput) as caught:
        experiment = own(kind, folder, version, **data)
        list(open_source(experiment).records("train"))
    return str(caught.value)


def test_what_is_wrong_with_a_delta_table(tmp_path: Path) -> None:
    delta(tmp_path / "reviews", rows(5))
    assert wrong("delta", tmp_path, 7) == f"{tmp_path}/reviews has no version 7: the newest is 0"
    (tmp_path / "folder").mkdir()
    for name in ("folder", "nowhere"):
        assert "is not a Delta table: name the folder that contains _delta_log" in wrong(
            "delta", tmp_path, path=str(tmp_path / name)
        )
    no_column = wrong("delta", tmp_path, columns={"sentence": "text", "label": "class"})
    assert no_column.startswith(
        f"{tmp_path}/reviews@v0 has no column 'text' for the role sentence; found: id, body, class."
    )
    assert "reviews@v0: the column 'id' has the type int64, but it must be text" in wrong(
        "delta", tmp_path, columns={"sentence": "id", "label": "class"}
    )
    log = tmp_path / "reviews/_delta_log/00000000000000000000.json"
    log.write_text(log.read_text()[:100])
    assert "cannot be read" in wrong("delta", tmp_path)


def test_what_is_wrong_with_an_iceberg_table(tmp_path: Path) -> None:
    table = iceberg(tmp_path, rows(5))
    number = table.current_snapshot().snapshot_id  # type: ignore[union-attr]
    assert wrong("iceberg", tmp_path, 7) == f"prod.shop.reviews has no snapshot 7: the latest are {number}"
    for name in ("prod.shop.other", "other.shop.reviews"):
        assert f"has no table {name}: name it as CATALOG.NAMESPACE.TABLE" in wrong("iceberg", tmp_path, table=name)
    assert "nowhere.db is missing: correct the address of the catalog" in wrong(
        "iceberg", tmp_path, path=f"sqlite:///{tmp_path}/nowhere.db"
    )
    (tmp_path / "other.db").write_text("text")
    assert "other.db cannot be read" in wrong("iceberg", tmp_path, path=f"sqlite:///{tmp_path}/other.db")
    assert "prod.shop.reviews@" in wrong("iceberg", tmp_path, columns={"sentence": "text", "label": "class"})
    assert "needs the Python package psycopg" in wrong("iceberg", tmp_path, path="postgresql://db.example.org/shop")
    iceberg(tmp_path, rows(5).slice(0, 0), name="shop.empty")
    assert "has no" in wrong("iceberg", tmp_path, table="prod.shop.empty")


def test_a_delta_table_is_not_read_as_files(tmp_path: Path) -> None:
    delta(tmp_path / "reviews", rows(5))
    given = {"task": "classification", "source": "files", "labels": ["no", "yes"]}
    for name in ("reviews", "reviews/*.parquet"):
        with pytest.raises(BadInput, match=r"is a Delta table: write data\.source: delta, and its folder as data.path"):
            open_source(build({"data": {**given, "path": str(tmp_path / name)}}, "mine"))


def test_files_of_a_table_lie_below_the_data_of_the_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delta(tmp_path / "data/reviews", rows(5))
    iceberg(tmp_path / "data", rows(5))
    monkeypatch.setenv("SPARK_BERT_DATA", str(tmp_path / "data"))
    assert texts(open_source(own("delta", tmp_path / "data"))) == texts(open_source(own("iceberg", tmp_path / "data")))
    monkeypatch.setenv("SPARK_BERT_DATA", str(tmp_path / "other"))
    for kind in ("delta", "iceberg"):
        assert "which is not below" in wrong(kind, tmp_path / "data")


@pytest.mark.parametrize("path", ["{}", "file://{}", "../../out/part.parquet", "%2E%2E/%2e%2e/out/part.parquet", " {}"])
def test_the_log_of_a_delta_table_leads_to_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    delta(tmp_path / "data/reviews", rows(5))
    other = tmp_path / "out/part.parquet"
    other.parent.mkdir()
    pq.write_table(rows(5), other)
    log = tmp_path / "data/reviews/_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"] |= {"path": path.format(other), "size": other.stat().st_size}
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    monkeypatch.setenv("SPARK_BERT_DATA", str(tmp_path / "data"))
    assert "which is not in its folder" in wrong("delta", tmp_path / "data")


def test_a_catalog_of_iceberg_leads_to_no_other_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    table = iceberg(tmp_path / "data", rows(5))
    metadata = Path(table.metadata_location.removeprefix("file://"))

    def wrong_with(place: str) -> str:
        with closing(sqlite3.connect(tmp_path / "data/catalog.db")) as connection, connection:
            connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (place,))
        return wrong("iceberg", tmp_path / "data")

    (tmp_path / "token").write_text("a token")
    assert "a token" not in wrong_with(f"file://{tmp_path}/token")
    monkeypatch.setenv("SPARK_BERT_DATA", str(tmp_path / "data"))
    for place in (f"file://{tmp_path}/token", f"{tmp_path}/data/a#/../../token"):
        assert f"the file {tmp_path}/token, which is not below" in wrong_with(place)
    assert "its catalog is a file" in wrong_with("s3://bucket/metadata.json")
    content = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(content | {"properties": {"py-io-impl": "sys.exit"}}))
    with closing(sqlite3.connect(tmp_path / "data/catalog.db")) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (table.metadata_location,))
    assert len(texts(open_source(own("iceberg", tmp_path / "data")))) == 5


def test_copies_of_a_delta_table_that_have_changed_are_different_tables(tmp_path: Path) -> None:
    delta(tmp_path / "reviews", rows(5))
    shutil.copytree(tmp_path / "reviews", tmp_path / "copy/reviews")
    found = [open_source(own("delta", tmp_path / name)).fingerprint() for name in (".", "copy")]
    assert found[0] == found[1]
    for name, first in ((".", 5), ("copy", 10)):
        delta(tmp_path / name / "reviews", rows(5, first))
    found = [open_source(own("delta", tmp_path / name)).fingerprint() for name in (".", "copy")]
    assert found[0] != found[1]


def test_labels_are_found_and_validate_tells_the_version(tmp_path: Path) -> None:
    delta(tmp_path / "reviews", rows(60))
    experiment = own("delta", tmp_path, task="auto", labels=[], keep=["id"])
    assert describe(experiment).data.labels == ("no", "yes")
    run = Run(tmp_path / "home/runs/one")
    first = run_stage("validate", experiment, run)
    assert first.manifest.result["table_version"] == "0"
    kept = pq.read_table(first.path / "kept-test.parquet").to_pydict()
    test = pq.read_table(first.path / "test.parquet").to_pydict()
    assert [f"text {number}" for number in kept["id"]] == test["sentence1"]
    delta(tmp_path / "reviews", rows(20, 60))
    again = own("delta", tmp_path, 0, task="auto", labels=[], keep=["id"])
    second = run_stage("validate", again, Run(tmp_path / "home/runs/two"))
    files = [{split: pq.read_table(made.path / f"{split}.parquet") for split in SPLITS} for made in (first, second)]
    assert files[0] == files[1]
    with pytest.raises(BadInput, match=rf"^{tmp_path}/reviews@v0 has no column 'ID', which data\.keep names"):
        run_stage("validate", own("delta", tmp_path, 0, keep=["ID"]), run)


def test_a_table_to_score_shows_what_it_is(tmp_path: Path) -> None:
    delta(tmp_path / "reviews", rows(5))
    iceberg(tmp_path, rows(5))
    (tmp_path / "a.csv").write_text("text\nx\n")
    found = [
        scored_table(Scoring(input=str(tmp_path / "reviews"))),
        scored_table(Scoring(input=catalog(tmp_path), table="prod.shop.reviews")),
        scored_table(Scoring(input=str(tmp_path / "a.csv"))),
        scored_table(Scoring(input="jdbc:x://y/z", table="t")),
    ]
    assert [table and table.identity.split()[0] for table in found] == ["delta", "iceberg", None, None]
    with pytest.raises(BadInput, match=r"scoring\.version is 3, but .*a\.csv is no Delta table"):
        scored_table(Scoring(input=str(tmp_path / "a.csv"), version="3"))
