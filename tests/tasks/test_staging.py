"""The staging of files between the driver and the executors: in place, and in the bucket of a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from include.stages import BadInput
from tasks import staging
from tasks.staging import STAGING, Staging, below, fetched, opened, whole_file
from tests.ports import free_port


def test_executors_read_what_is_shared_and_the_driver_what_they_wrote(
    staged: Staging, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a [b].txt").write_text("shared")
    folder, out = staged.share(tmp_path / "in"), staged.address_of(tmp_path / "out")
    (tmp_path / "out").mkdir()

    def work(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with whole_file(below(out, f"part-{number}")) as attempt:
                    text = (fetched(folder) / "deep" / "a [b].txt").read_text()
                    with opened(below(folder, "deep/a [b].txt")) as stream:
                        attempt.write_text(f"{number} {text} {stream.read_at(3, 1).decode()}")
            yield batch

    spark.range(0, 3, 1, 3).mapInArrow(work, "id long").collect()
    staged.collect(tmp_path / "out")
    assert {file.name: file.read_text() for file in (tmp_path / "out").iterdir()} == {
        f"part-{number}": f"{number} shared har" for number in range(3)
    }


def test_only_the_files_that_are_needed_are_shared_and_each_result_is_brought_once(
    staged: Staging, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in" / "deep" / "er").mkdir(parents=True)
    needed = [tmp_path / "in" / name for name in ("a.txt", "deep/er/b.txt")]
    for file in (*needed, tmp_path / "in/large.bin"):
        file.write_text(file.name)
    folder, out = staged.share(tmp_path / "in", needed), tmp_path / "out"
    out.mkdir()
    address = staged.address_of(out)

    def work(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with whole_file(below(address, f"part-{number}")) as attempt:
                    found = [file.name for file in fetched(folder).rglob("*") if file.is_file()]
                    attempt.write_text(" ".join(sorted(found)))
            yield batch

    spark.range(0, 2, 1, 2).mapInArrow(work, "id long").collect()
    (out / ".part-2.attempt-7").touch()  # of a task that is still at work
    if staged.url:
        (tmp_path / "empty").touch()
        staging.transfer(str(tmp_path / "empty"), below(address, "part-3"))  # which is still being written
    staged.collect(out, ended=False)
    assert (out / ".part-2.attempt-7").exists() and not (out / "part-3").exists()
    assert (out / "part-1").read_text() == ("a.txt b.txt" if staged.url else "a.txt b.txt large.bin")
    (out / "part-0").write_text("as it was")
    staged.collect(out)
    assert {file.name for file in out.iterdir()} == {"part-0", "part-1", *(["part-3"] if staged.url else [])}
    assert (out / "part-0").read_text() == "as it was"


def test_a_folder_of_a_session_is_gone_after_it(
    bucket: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STAGING, bucket)
    with staging.staging(spark) as local:  # whose executors are on this machine
        assert local == Staging()
    monkeypatch.setattr(staging, "is_local", lambda spark: False)
    (tmp_path / "file").write_text("some")
    with staging.staging(spark) as staged, opened(staged.share(tmp_path / "file")) as stream:
        assert stream.read() == b"some"
    files, path = fs.FileSystem.from_uri(bucket)
    assert not [info for info in files.get_file_info(fs.FileSelector(path)) if info.base_name.startswith("spark-bert")]


def test_work_that_is_done_stays_done_if_its_folder_cannot_be_removed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(staging, "is_local", lambda spark: False)
    monkeypatch.setenv(STAGING, f"s3://user:secret@bucket?endpoint_override=127.0.0.1:{free_port()}&scheme=http")
    with staging.staging(spark):
        pass
    assert "the files of this session remain in the store" in caplog.text and "secret" not in caplog.text


def test_a_store_of_no_known_kind_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "is_local", lambda spark: False)
    monkeypatch.setenv(STAGING, "ftp://host/folder")
    refused = pytest.raises(BadInput, match=r"SPARK_BERT_STAGING ftp://host/folder/.* cannot be opened")
    with refused, staging.staging(spark):
        pass
