"""The stage stream: every row of a file is labeled or set aside exactly once."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from include.artifacts import Artifact, locked
from include.fields.labeling import Streaming
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.inference.labeler import answers
from tasks.runner import run_stage
from tasks.scoring.drift import PROFILE, Profile, Tally
from tasks.scoring.risk import Guard
from tasks.stages.labeling.stream import labeler
from tasks.stages.labeling.stream.batches import Batches
from tasks.stages.labeling.stream.label import LabelRows
from tasks.stages.labeling.stream.source import remember
from tests.tasks.stages.labeling.score.models import CLASSES, trained
from tests.tasks.stages.labeling.score.test_score_stage import expected, texts
from tests.tasks.stages.pipeline.package.packages import doubt, unchanged_package
from tests.tasks.streaming.brokers import Brokers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def stream(home: Path, model: Path, run: str = "one", **streaming: Any) -> Artifact:
    """Label what is in the folder `in` of the home."""
    values = {"folder": str(home / "in"), "model": str(model), "settle": 0, **streaming}
    return run_stage("stream", build({"streaming": values}, "test"), Run(home / "runs" / run))


def labeled(home: Path) -> list[dict[str, Any]]:
    """All labeled rows, as any reader of Parquet sees them."""
    rows: list[dict[str, Any]] = pq.read_table(home / "streams/stream/batches").to_pylist()
    return sorted(rows, key=lambda row: (row["source"], row["position"]))


def write_csv(file: Path, rows: list[str]) -> None:
    file.write_text("\n".join(["id,text", *(f'{at},"{text}"' for at, text in enumerate(rows))]) + "\n")


def test_new_files_are_labeled_once(spark: SparkSession, model: Path, tmp_path: Path) -> None:
    rows, home = texts(40), tmp_path / "home [a-z]? \u00fc%20"
    folder = home / "in"
    folder.mkdir(parents=True)
    write_csv(folder / "a.csv", rows[:25])
    first = stream(home, model).manifest.result
    assert (first["batches"], first["rows_in"], first["rows"], first["aside"]) == (1, 25, 25, 0)
    write_csv(folder / "b.csv", rows[25:])
    second = stream(home, model, "two").manifest.result
    assert (second["batches"], second["rows"]) == (1, 15)
    with (folder / "a.csv").open("a") as file:
        file.write("25,late\n")
    third = stream(home, model, "three").manifest.result
    assert (third["batches"], third["changed"], second["changed"]) == (0, ["a.csv"], [])
    found = labeled(home)
    assert [place.name for place in tmp_path.iterdir()] == [home.name]
    assert [row["text"] for row in found] == rows and [row["source"] for row in found] == ["a.csv"] * 25 + [
        "b.csv"
    ] * 15
    assert json.loads(found[3]["row"]) == {"id": "3", "text": rows[3]} and found[3]["position"] == 5
    predicted, probabilities = expected(model, [(text,) for text in rows])
    assert [row["prediction"] for row in found] == predicted
    np.testing.assert_allclose([row["probability:yes"] for row in found], probabilities[:, 1], atol=1e-5)


def test_where_the_model_abstains_the_label_is_empty_and_drift_is_that_of_all_rows(
    spark: SparkSession, model: Path, folder: Path, tmp_path: Path
) -> None:
    rows, package = texts(40), tmp_path / "package"
    write_csv(folder / "a.csv", rows)
    package.mkdir()
    unchanged_package(package, model, CLASSES)
    confidence = expected(model, [(text,) for text in rows])[1].max(axis=1)
    doubt(package, float(np.median(confidence)))
    values = {"folder": str(folder), "model": str(package), "settle": 0}
    wanted = build({"streaming": values, "prediction": {"max_risk": 0.05}}, "test")
    result = run_stage("stream", wanted, Run(tmp_path / "runs/one")).manifest.result
    least = Guard.read(package, "torch-fp32", 0.05).least
    assert least and result["answered"] == (confidence >= least).sum() and 15 < result["answered"] < 35
    for row in labeled(tmp_path):
        assert (row["predicted_label"] is None) == (row["prediction"] is None) == (row["abstained"] is not None)
    tally = Tally.from_json(json.loads((tmp_path / "streams/stream/batches/batch=0/_tally.json").read_text()))
    assert set(tally.profile.labels) == {"no", "yes"} and tally.profile.labels.total() == len(rows)


@pytest.mark.parametrize("point", ["before the rename", "after the rename", "before the windows"])
def test_a_batch_that_was_cut_short_is_neither_lost_nor_repeated(
    spark: SparkSession, model: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    commit = Batches.commit

    def cut_short(batches: Batches, whole: Path, manifest: dict[str, Any]) -> None:
        if point == "after the rename":
            commit(batches, whole, manifest)
        raise OSError("cut short")

    def no_windows(*_: object) -> None:
        raise OSError("cut short")

    rows = texts(30)
    write_csv(folder / "a.csv", rows)
    with monkeypatch.context() as patch, pytest.raises(Transient, match="cut short"):
        if point == "before the windows":
            patch.setattr(labeler, "close_windows", no_windows)
        else:
            patch.setattr(Batches, "commit", cut_short)
        stream(tmp_path, model, window_rows=10)
    result = stream(tmp_path, model, window_rows=10).manifest.result
    assert (result["batches"], result["rows"], result["windows"]) == (1, 30, 1)
    assert [row["text"] for row in labeled(tmp_path)] == rows
    assert not list((tmp_path / "streams/stream/batches").glob(".*"))


def test_what_cannot_be_labeled_is_set_aside_and_the_rest_goes_on(
    spark: SparkSession, model: Path, folder: Path, tmp_path: Path
) -> None:
    good = texts(3)
    lines = [json.dumps({"text": text, "n": number}) for number, text in enumerate(good)]
    bad = ['{"text": ', '{"n": 1}', '{"text": 5}', '{"text": " "}', '{"text": "a\\u0000b"}', '{"text": "\\ud800"}']
    (folder / "a.jsonl").write_text("\n".join([*lines, "", *bad]) + "\n")
    (folder / "b.csv").write_text('text\n"good film"\n"never closed\n')
    (folder / "c.csv").write_bytes("text\nfilm".encode("utf-16"))
    (folder / "d.txt").write_text("good film\n")
    (folder / "e.csv.part").write_text("text\ngood film\n")
    pq.write_table(
        pa.table({"text": [b"a film", None, b"\x89PNG"], "score": [math.nan, 1.0, 2.0]}), folder / "f.parquet"
    )
    artifact = stream(tmp_path, model)
    found = labeled(tmp_path)
    assert [(row["source"], row["position"]) for row in found] == [
        ("a.jsonl", 1), ("a.jsonl", 2), ("a.jsonl", 3), ("b.csv", 2), ("f.parquet", 1),
    ]  # fmt: skip
    assert found[4]["row"] == '{"text": "a film", "score": null}'
    file = tmp_path / "streams/stream/batches/batch=0/_aside.jsonl"
    aside = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    reasons = {(entry["source"], entry["position"]): entry["reason"] for entry in aside}
    assert {at: reasons[("a.jsonl", at)] for at in range(5, 11)} == {
        5: "not a JSON object", 6: "no column text", 7: "text is not a text", 8: "empty text",
        9: "broken encoding: contains a NUL byte", 10: "broken encoding: contains half of a surrogate pair",
    }  # fmt: skip
    assert "unbalanced quotes" in reasons[("b.csv", 3)] and "UTF-16" in reasons[("c.csv", 1)]
    assert reasons[("f.parquet", 2)] == "no text"
    assert reasons[("f.parquet", 3)] == "text has bytes that are not UTF-8"
    assert reasons[("d.txt", 1)] == (
        "the file has a name that does not tell its format: put it there again under one that ends in .csv, .tsv, "
        ".jsonl, .ndjson, .parquet"
    )
    result = artifact.manifest.result
    assert (result["rows_in"], result["rows"], result["aside"]) == (16, 5, 11) and len(aside) == 11
    heartbeat = json.loads((tmp_path / "streams/stream/heartbeat.json").read_text())
    assert (heartbeat["rows"], heartbeat["aside"]) == (5, 11)


@pytest.mark.long
def test_batches_have_at_most_so_many_files_and_windows_so_many_rows(
    spark: SparkSession, model: Path, folder: Path, tmp_path: Path
) -> None:
    rows = texts(50)
    labels = ["no", "yes"]
    answers = [labels[at] for at in expected(model, [(text,) for text in rows])[0]]
    write_profile(model.parent, answers, rows)
    for at in range(5):
        write_csv(folder / f"{at}.csv", rows[10 * at : 10 * at + 10])
        os.utime(folder / f"{at}.csv", (at, at))
    result = stream(tmp_path, model, batch_files=2, window_rows=20).manifest.result
    assert (result["batches"], result["rows"], result["windows"]) == (3, 50, 2)
    windows = tmp_path / "streams/stream/windows"
    assert sorted(file.name for file in windows.iterdir()) == ["0-0.json", "1-1.json"]
    first = json.loads((windows / "0-0.json").read_text())
    assert first["rows"] == 20 and sum(first["labels"].values()) == pytest.approx(1)
    assert 0.5 < first["confidence"] <= 1 and first["passed"] and result["drift"] == []
    write_csv(folder / "other.csv", ["words that nobody knows"] * 10)
    again = stream(tmp_path, model, "two", window_rows=20).manifest.result
    assert again["windows"] == 1 and again["drift"][0]["window"] == "batches 2 to 3"
    assert "the drift of vocabulary is" in again["drift"][0]["reasons"][-1]


def write_profile(package: Path, labels: list[str], rows: list[str]) -> None:
    profile = Profile.of("classification", [(row,) for row in rows], labels)
    (package / PROFILE).write_text(json.dumps(profile.as_json()))


def test_a_stream_is_one_folder_or_topic_and_its_checkpoint_belongs_to_its_batches(
    spark: SparkSession, model: Path, folder: Path, tmp_path: Path
) -> None:
    write_csv(folder / "a.csv", texts(5))
    stream(tmp_path, model)
    (tmp_path / "other").mkdir()
    with pytest.raises(BadInput, match=r"was begun with files of \S+/in and the texts text, not files of \S+/other"):
        stream(tmp_path, model, "two", folder=str(tmp_path / "other"))
    with pytest.raises(BadInput, match="the texts text, not files of"):
        stream(tmp_path, model, "two", text="body")
    shutil.rmtree(tmp_path / "streams/stream/checkpoint")
    write_csv(folder / "b.csv", texts(5))
    with pytest.raises(BadInput, match="was labeled before the stream's checkpoint was removed"):
        stream(tmp_path, model, "two")
    heartbeat = json.loads((tmp_path / "streams/stream/heartbeat.json").read_text())
    assert heartbeat["state"] == "failed" and "checkpoint was removed" in heartbeat["message"]


def test_a_folder_in_the_home_moves_with_it_but_no_other_does(tmp_path: Path) -> None:
    home, moved, outside = tmp_path / "home", tmp_path / "moved", tmp_path / "outside"
    for folder in (home / "streams/inside", home / "streams/outside", home / "in", outside):
        folder.mkdir(parents=True)

    def begin(home: Path, name: str, folder: Path) -> None:
        file = home / "streams" / name / "stream.json"
        remember(Streaming(name=name, folder=str(folder)), file)
        (file.parent / "checkpoint").mkdir(exist_ok=True)

    begin(home, "inside", home / "in")
    begin(home, "outside", outside)
    home.rename(moved)
    begin(moved, "inside", moved / "in")
    begin(moved, "outside", outside)
    outside.rename(tmp_path / "elsewhere")
    with pytest.raises(
        BadInput, match=rf"not files of {tmp_path}/elsewhere .* write that as reads into {moved}/streams"
    ):
        begin(moved, "outside", tmp_path / "elsewhere")
    with pytest.raises(BadInput, match=rf"was begun with files of {moved}/in and .*, not kafka of in and .* anew\.$"):
        remember(Streaming(name="inside", source="kafka", topic="in"), moved / "streams/inside/stream.json")


@pytest.mark.long
def test_what_is_missing_from_the_folder_of_a_stream_loses_no_rows(
    spark: SparkSession, model: Path, encoder: Path, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=r"text2 names the column 'b'"):
        stream(tmp_path, trained(tmp_path / "single", encoder, replace(CLASSES, texts=1)), "typo", text2="b")
    home = tmp_path / "streams/stream"
    stream(tmp_path, model, "empty")  # the columns of a stream that has read nothing are not settled
    write_csv(folder / "a.csv", texts(5))
    stream(tmp_path, model)
    older = shutil.copytree(home / "checkpoint", tmp_path / "older")
    write_csv(folder / "b.csv", texts(5))
    stream(tmp_path, model, "two")
    write_csv(folder / "c.csv", texts(5))
    newer = (home / "checkpoint").rename(tmp_path / "newer")
    older.rename(home / "checkpoint")
    with pytest.raises(BadInput, match=r"batch=2 has other rows than the stream's checkpoint says"):
        stream(tmp_path, model, "three")
    shutil.rmtree(home / "checkpoint")
    newer.rename(home / "checkpoint")
    for name, message in (("batches/batch=2", "batch=2 is missing"), ("files.jsonl", "jsonl is missing")):
        (home / name).rename(tmp_path / "away")
        with pytest.raises(BadInput, match=message):
            stream(tmp_path, model, "three")
        (tmp_path / "away").rename(home / name)
    assert stream(tmp_path, model, "three").manifest.result["rows"] == 5
    assert [row["source"] for row in labeled(tmp_path)] == ["a.csv"] * 5 + ["b.csv"] * 5 + ["c.csv"] * 5


@pytest.mark.parametrize(
    ("streaming", "message"),
    [
        ({"folder": ""}, r"streaming\.folder is empty, but streaming\.source is files"),
        ({"folder": "/nowhere/at/all"}, "there is no folder /nowhere/at/all: make it, or correct streaming.folder"),
        ({"source": "kafka", "brokers": "here:9092"}, r"streaming\.topic is empty"),
        ({"text": "source"}, "the column 'source' has a name that the labeled rows need"),
        ({"text": "Batch"}, "the column 'Batch' has a name that the labeled rows need"),
        ({"text": "a", "text2": "A"}, r"streaming\.text and streaming\.text2 are both 'a': name two columns"),
        ({"text2": "b"}, r"streaming\.text2 names the column 'b', but .* single texts: leave streaming\.text2 empty"),
    ],
)
def test_what_cannot_work_is_refused_before_spark_starts(
    encoder: Path, folder: Path, tmp_path: Path, streaming: dict[str, str], message: str
) -> None:
    single = trained(tmp_path / "single", encoder, replace(CLASSES, texts=1))
    with pytest.raises(BadInput, match=message):
        stream(tmp_path, single, **streaming)


def test_what_an_attempt_left_behind_does_not_become_part_of_a_batch(tmp_path: Path) -> None:
    (tmp_path / "checkpoint/offsets").mkdir(parents=True)
    (tmp_path / "checkpoint/metadata").write_text('{"id": "a"}')
    (tmp_path / "checkpoint/offsets/0").write_text('v1\n{}\n{"files": 1}')
    batches = Batches(tmp_path)
    with batches.writing(0) as whole:
        for name in (".part-00000.1", "part-00000.parquet", "_aside-00000.jsonl", "_aside-00001.jsonl"):
            (whole / name).write_text(f"{name}\n")
        batches.commit(whole, {"batch": 0})
    found = sorted(file.name for file in (tmp_path / "batches/batch=0").iterdir())
    assert found == ["_aside.jsonl", "_manifest.json", "part-00000.parquet"] and batches.committed(0)
    aside = (tmp_path / "batches/batch=0/_aside.jsonl").read_text()
    assert aside == "_aside-00000.jsonl\n_aside-00001.jsonl\n"


def test_one_process_at_a_time(model: Path, folder: Path, tmp_path: Path) -> None:
    with locked(tmp_path / "streams/stream"), pytest.raises(Transient, match="is in use by process"):
        stream(tmp_path, model)
    assert not (tmp_path / "streams/stream/heartbeat.json").exists()


def test_messages_of_a_topic_are_labeled_once(spark: SparkSession, model: Path, tmp_path: Path) -> None:
    brokers, rows = Brokers(), texts(12)
    brokers.make("reviews", 2)
    try:
        for part in (0, 1):
            brokers.write(
                "reviews", part, [json.dumps({"text": text}).encode() for text in rows[6 * part : 6 * part + 6]]
            )
        brokers.write("reviews", 1, [None, b"good film"])
        kafka: dict[str, Any] = {"source": "kafka", "brokers": brokers.addresses, "topic": "reviews", "batch_rows": 8}
        first = stream(tmp_path, model, **kafka).manifest.result
        brokers.write("reviews", 0, [b'{"text": "a film"}'])
        second = stream(tmp_path, model, "two", **kafka).manifest.result
    finally:
        brokers.close()
    assert (first["rows_in"], first["rows"]) == (14, 12)
    assert first["reasons"] == {"no value (a tombstone)": 1, "not a JSON object": 1}
    assert (second["rows_in"], second["rows"]) == (1, 1)
    found = labeled(tmp_path)
    places = [("reviews-0", at) for at in range(7)] + [("reviews-1", at) for at in range(6)]
    assert [(row["source"], row["position"]) for row in found] == places
    assert [row["text"] for row in found] == [*rows[:6], "a film", *rows[6:]]


def test_the_executors_need_no_folder_of_the_stream(
    spark: SparkSession, model: Path, folder: Path, tmp_path: Path, with_store: str
) -> None:
    rows = texts(30)
    for number in range(3):
        (folder / f"{number}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in [*rows, ""]))
    result = stream(tmp_path, model, batch_files=1).manifest.result
    assert (result["batches"], result["rows"], result["reasons"]) == (3, 90, {"empty text": 3})
    assert [row["text"] for row in labeled(tmp_path)] == rows * 3
    files, path = fs.FileSystem.from_uri(with_store)
    assert not files.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))


def test_a_partition_keeps_one_tally_however_many_chunks_it_has(tmp_path: Path) -> None:
    class Unsure:
        head, version = CLASSES, "1"

        def label(self, batches: Iterable[pa.RecordBatch], texts: Any) -> Iterator[pa.Table]:
            for rows in batches:
                halves = np.full((len(rows), CLASSES.outputs), 0.5)
                yield pa.table({name: rows[name] for name in rows.schema.names} | answers(CLASSES, halves))

    chunks = (
        pa.record_batch({
            "source": ["a", "a"], "position": [at, at + 1], "time": pa.nulls(2),
            "row": [f'{{"text": "word{at}"}}', "x"],
            "problem": pa.nulls(2, pa.string()),
        })
        for at in range(0, 40, 2)
    )  # fmt: skip
    found = [Tally.nothing(0, "1", CLASSES.kind)]
    labeled = LabelRows(Unsure(), 0, ("text",), str(tmp_path))._labeled(chunks, StringIO(), found)  # type: ignore[arg-type]
    assert sum(len(table) for table in labeled) == 20
    [tally] = found
    assert tally.profile.rows == len(tally.profile.words) == 20 and tally.reasons == {"not a JSON object": 20}
    assert tally.confidence == 10.0
