"""The stage ingest as the command line runs it: versions, what is left out of them, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.artifacts import sha256
from include.experiment import Experiment
from include.folders import Dropped
from include.runs import Run
from include.stages import BadInput, ExitCode, Transient
from tasks.__main__ import main
from tasks.runner import run_stage
from tasks.stages.lifecycle.ingest.drop_folder import set_aside
from tests.tasks.stages.lifecycle.ingest.homes import Home, aged, record, table
from tests.tasks.stages.pipeline.validate import made_up


def test_the_first_version_is_the_experiments_own_data(home: Home) -> None:
    first = home.ingest()
    assert first.manifest.result["new"] and home.versions() == [first.manifest.key]
    assert table(first) == (home.data / "train.tsv").read_text().splitlines()
    assert table(first, "dev") == (home.data / "dev.tsv").read_text().splitlines()
    assert table(first, "test") == ["sentence", *(f"test sentence {number}" for number in range(40))]
    assert record(first)["parent"] == "" and record(first)["rows"] == {"train": 200, "dev": 40, "test": 40}


def test_new_rows_make_a_version_that_the_pipeline_trains_on(home: Home) -> None:
    first = home.ingest()
    home.put(
        "week-1.csv", '"a fine, ""new"" film\twith\ntwo lines",1', "a dull one,0", ",", ",", header="sentence,label"
    )
    pq.write_table(pa.table({"label": [1], "id": [7], "sentence": ["out of Parquet"]}), home.drop / "week-1.parquet")
    aged(home.drop / "week-1.parquet")
    second = home.ingest("second")
    new = ['a fine, "new" film with two lines\t1', "a dull one\t0", "out of Parquet\t1"]
    assert table(second) == [*table(first), *new]
    assert "week-1.csv: 2 blank rows at the end were ignored" in second.manifest.result["warnings"][0]
    assert [table(second, split) for split in ("dev", "test")] == [table(first, split) for split in ("dev", "test")]
    assert (
        home.versions() == [second.manifest.key, first.manifest.key] and record(second)["parent"] == home.versions()[1]
    )
    assert {name: file["rows"] for name, file in record(second)["files"].items()} == {
        "week-1.csv": 2, "week-1.parquet": 1,
    }  # fmt: skip
    assert table(first)[-1] == "train sentence 199\t1" and len(list(home.drop.iterdir())) == 2  # both untouched
    data = {key.partition(".")[2]: value for key, value in second.manifest.result["data"].items()}
    trained = Experiment.model_validate({"data": {"task": "SST-2", **data}})
    rows = made_up.validate(home.root, trained).manifest.result["rows"]
    assert rows == second.manifest.result["rows"] == {"train": 203, "dev": 40, "test": 40}


def test_a_file_that_comes_with_the_first_version_is_in_it(home: Home) -> None:
    home.put("early.tsv", "a fine film\t1")
    assert table(home.ingest())[-1] == "a fine film\t1" and len(home.versions()) == 1


def test_what_is_known_repeated_contradicted_or_held_out_is_counted_and_left_out(home: Home) -> None:
    home.ingest()
    home.put("a.tsv", "A  Fine film\t1", "a fine film\t1", "Train sentence  3\t1", "train sentence 4\t1",
             "DEV sentence, 5\t1", "test sentence 6.\t0", "either way\t0", "my way :)\t1", "my way :(\t0")  # fmt: skip
    home.put("b.tsv", "Either way \t1", "a fine film\t1")
    second = home.ingest("second")
    assert second.manifest.result["counts"] == {
        "added": 3, "duplicate": 2, "known": 1, "conflict": 3, "in_dev": 1, "in_test": 1, "unusable": 0,
    }  # fmt: skip
    assert table(second)[201:] == ["A  Fine film\t1", "my way :)\t1", "my way :(\t0"]
    aside = made_up.lines(second.path / "quarantine.jsonl")
    assert [(Path(row["file"]).name, row["line"], row["reason"]) for row in aside] == [
        ("a.tsv", 5, "conflict: the same text also has the label 0"),
        ("a.tsv", 8, "conflict: the same text also has the label 1"),
        ("b.tsv", 2, "conflict: the same text also has the label 0"),
    ]


def test_nothing_new_points_at_the_last_version(home: Home) -> None:
    home.put("a.tsv", "a fine film\t1")
    first = home.ingest()
    again = home.ingest("second")
    result = again.manifest.result
    assert (result["new"], result["version"], again.manifest.exit_code) == (False, first.manifest.key, ExitCode.DONE)
    assert result["data"] == first.manifest.result["data"] and home.versions() == [first.manifest.key]


def test_a_file_is_known_by_its_content(home: Home) -> None:
    home.put("a.tsv", "a fine film\t1")
    home.ingest()
    home.put("renamed.tsv", "a fine film\t1", age=0)
    home.put("b.tsv", "a dull one\t0")
    home.put("twin of b.tsv", "a dull one\t0")
    assert list(record(home.ingest("second"))["files"]) == ["b.tsv"]
    home.put("a.tsv", "a fine film\t1", "and another\t0")
    third = home.ingest("third").manifest.result
    assert (third["new"], third["counts"]["known"], third["counts"]["added"]) == (True, 1, 1)


def test_a_file_of_known_rows_only_is_nothing_new(home: Home) -> None:
    first = home.ingest()
    home.put("a.tsv", "train sentence 3\t1")
    result = home.ingest("second").manifest.result
    assert (result["new"], result["version"], result["counts"]["known"]) == (False, first.manifest.key, 1)


MALFORMED = [
    ("a.csv", "text,label\nx,1\n", r"a\.csv has no column 'sentence' .*Name the column in data\.columns"),
    ("a.csv", 'sentence,label\nx,1\n"y,0\n', r"a\.csv line 3: unbalanced quotes .*double every quote"),
    ("a.tsv", "sentence\tlabel\nfine\t1\n\t1\n", r"a\.tsv: 1 of 2 rows .*\(line 3: empty text\).*: correct them"),
    ("a.tsv", "sentence\tlabel\nfine\tyes\n", r"a\.tsv: 1 of 1 .*line 2: label 'yes' is not one of 0, 1"),
    ("a.parquet", "PAR", r"a\.parquet is not a Parquet file"),
    ("a.tsv", "", r"a\.tsv is empty: add data to it"),
    ("a.xlsx", "PK", r"a\.xlsx: the names .* must all end in one of \.csv, \.tsv, \.jsonl"),
]


@pytest.mark.parametrize(("name", "text", "message"), MALFORMED)
def test_a_malformed_file_is_set_aside_with_the_reason_and_the_others_are_taken(
    home: Home, name: str, text: str, message: str
) -> None:
    first = home.ingest()
    home.put("sound.tsv", "a fine film\t1")
    (home.drop / name).write_text(text)
    aged(home.drop / name)
    second = home.ingest("second")
    assert home.versions() == [second.manifest.key, first.manifest.key]
    assert table(second) == [*table(first), "a fine film\t1"] and list(record(second)["files"]) == ["sound.tsv"]
    (refused,) = second.manifest.result["refused"].items()
    assert refused[0] == name and re.search(message, refused[1])
    (moved,) = (home.drop / "refused").rglob(name)
    assert moved.read_text() == text and (moved.parent / "reason.txt").read_text() == f"{refused[1]}\n"
    assert [file.name for file in home.drop.iterdir() if file.is_file()] == ["sound.tsv"]
    third = home.ingest("third").manifest.result
    assert (third["new"], third["refused"]) == (False, {})


def test_a_compressed_file_is_taken(home: Home) -> None:
    first = home.ingest()
    (home.drop / "new.tsv.gz").write_bytes(gzip.compress(b"sentence\tlabel\na fine film\t1\n"))
    (home.drop / "[n]ew.csv.gz").write_bytes(gzip.compress(b"sentence,label\na dull film,0\n"))
    (home.drop / "cut.tsv.gz").write_bytes(gzip.compress(b"sentence\tlabel\nx\t1\n")[:-3])
    for file in home.drop.iterdir():
        aged(file)
    second = home.ingest("second")
    assert table(second) == [*table(first), "a dull film\t0", "a fine film\t1"]
    assert re.search("cut.tsv.gz cannot be unpacked as gzip", second.manifest.result["refused"]["cut.tsv.gz"])


def test_a_malformed_file_alone_is_nothing_new(home: Home) -> None:
    first = home.ingest()
    home.put("a.tsv", "fine\tyes")
    result = home.ingest("second").manifest.result
    assert (result["new"], result["version"], list(result["refused"])) == (False, first.manifest.key, ["a.tsv"])


def test_a_file_that_was_set_aside_is_taken_once_it_can_be_read(home: Home) -> None:
    home.ingest()
    home.put("a.tsv", "a fine film\t1", header="review\tlabel")
    home.ingest("second")
    (moved,) = (home.drop / "refused").rglob("a.tsv")
    aged(moved.rename(home.drop / "a.tsv"))
    data = {**home.experiment().data.model_dump(), "source": "files", "path": str(home.data)}
    columns = {"data": {**data, "columns": {"sentence": "review"}}, "dataset": {"drop": str(home.drop)}}
    third = run_stage("ingest", Experiment.model_validate(columns), home.run("third"))
    assert table(third)[-1] == "a fine film\t1"


def test_two_malformed_files_of_one_name_are_both_kept(home: Home) -> None:
    home.ingest()
    for run, row in (("second", "fine\tyes"), ("third", "fine\tno")):
        home.put("a.tsv", row)
        home.ingest(run)
    texts = {file.read_text().splitlines()[1] for file in (home.drop / "refused").rglob("a.tsv")}
    assert texts == {"fine\tyes", "fine\tno"}


def test_a_malformed_file_that_may_still_be_being_copied_is_waited_for(home: Home) -> None:
    home.ingest()
    file = home.put("a.tsv", "a fine film\tye", age=10)
    with pytest.raises(Transient, match=r"a\.tsv was written 1\d seconds ago and may .*label 'ye' is not one of"):
        home.ingest("second")
    assert file.is_file() and len(home.versions()) == 1
    aged(file)
    home.ingest("second")
    assert not file.exists()


def test_a_file_that_was_mended_meanwhile_is_not_set_aside(home: Home) -> None:
    home.ingest()
    file = home.put("a.tsv", "fine\tyes")
    wrong = sha256(file)
    home.put("a.tsv", "fine\t1")
    set_aside(Dropped(file), wrong, "label 'yes'")
    assert file.is_file() and not (home.drop / "refused").exists()


def test_where_the_drop_folder_cannot_be_written_a_malformed_file_stays_and_is_named_each_time(home: Home) -> None:
    home.ingest()
    file = home.put("a.tsv", "fine\tyes")
    (home.drop / "refused").touch()  # in the way, as a folder without write access is
    aged(home.drop / "refused")
    for run in ("second", "third"):
        assert {"a.tsv", "refused"} == home.ingest(run).manifest.result["refused"].keys()
    assert file.is_file()


def test_a_link_is_no_file_and_nothing_is_written_through_one(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.ingest()
    outside = home.root / "outside"
    outside.mkdir()
    (outside / "secret.tsv").write_text("sentence\tlabel\nsecret\tyes\n")
    (home.drop / "a.tsv").symlink_to(outside / "secret.tsv")
    (home.drop / "refused").symlink_to(outside)
    bad = home.put("b.tsv", "fine\tyes")
    assert home.ingest("second").manifest.result["refused"].keys() == {"b.tsv"}
    assert "a.tsv is ignored, because it is a link: put the file itself there" in caplog.text and bad.is_file()
    (home.drop / "refused").unlink()
    (home.drop / "refused" / sha256(bad)[:16]).mkdir(parents=True)
    (home.drop / "refused" / sha256(bad)[:16] / "reason.txt").symlink_to(outside / "reason.txt")
    home.ingest("third")
    assert [file.name for file in outside.iterdir()] == ["secret.tsv"] and not bad.exists()


def test_few_unusable_rows_are_set_aside(home: Home) -> None:
    home.ingest()
    home.put("a.tsv", *(f"film {number}\t1" for number in range(99)), "\t1")
    second = home.ingest("second")
    assert second.manifest.result["counts"]["unusable"] == record(second)["files"]["a.tsv"]["unusable"] == 1
    assert [row["line"] for row in made_up.lines(second.path / "quarantine.jsonl")] == [101]


def test_a_file_that_is_being_copied_is_waited_for(home: Home) -> None:
    home.ingest()
    file = home.put("a.tsv", "a fine fi", age=-4)  # a slow machine has nine seconds for the next line
    with pytest.raises(Transient, match=r"a\.tsv was written \d seconds ago and may still be being copied"):
        home.ingest("second")
    home.put(file.name, "a fine film\t1")
    for unfinished in (".b.tsv.x7Qe", "b.tsv.part", "b.tsv.tmp"):
        home.put(unfinished, "half", age=0)
    assert list(record(home.ingest("second"))["files"]) == ["a.tsv"]


def test_a_file_whose_name_is_not_utf_8_is_left_where_it_is_with_a_warning(
    home: Home, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = home.put(os.fsdecode(b"caf\xe9.tsv"), "a fine film\t1")
    home.put("sound.tsv", "a dull one\t0")
    named = json.dumps(home.experiment().model_dump(mode="json", include={"data", "dataset"}))
    assert main(["ingest", "--experiment", named, "--run", str(home.folder / "runs/cli")]) == ExitCode.DONE
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["counts"]["added"] == 1 and file.is_file()
    assert "ignored, because its name is not UTF-8: rename it" in caplog.text


def test_the_drop_folder_must_be_there(home: Home) -> None:
    with pytest.raises(BadInput, match=r"dataset\.drop is not set"):
        home.ingest(drop="")
    with pytest.raises(BadInput, match="nowhere is not a folder: create it"):
        home.ingest(drop=str(home.root / "nowhere"))


def test_another_task_is_refused(home: Home) -> None:
    home.ingest()
    data = {"task": "CoLA", "source": "glue", "path": str(home.root / "glue")}
    dataset = {"name": "SST-2", "drop": str(home.drop)}
    with pytest.raises(BadInput, match="the dataset SST-2 has task 'SST-2', not 'CoLA': set another"):
        run_stage("ingest", Experiment.model_validate({"data": data, "dataset": dataset}), home.run())


def test_a_pair_with_scores_keeps_its_second_sentence(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        rows = [f"{split} {number},{split} too,{number % 3}" for number in range(9)]
        (tmp_path / f"{split}.csv").write_text("\n".join(["a,b,score", *rows]))
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / "more.csv").write_text("score,b,a\n2.50,new too,new\n0,train too,train 1\n")
    aged(drop / "more.csv")
    data = {
        "task": "regression", "source": "files", "path": str(tmp_path), "score_range": (0, 5),
        "train": "train.csv", "dev": "dev.csv", "test": "test.csv",
        "columns": {"sentence": "a", "sentence2": "b", "label": "score"},
    }  # fmt: skip
    experiment = Experiment.model_validate({"data": data, "dataset": {"name": "pairs", "drop": str(drop)}})
    version = run_stage("ingest", experiment, Run(tmp_path / "runs/first"))
    assert table(version)[0] == "sentence\tsentence2\tlabel" and table(version)[-1] == "new\tnew too\t2.50"
    assert version.manifest.result["counts"]["conflict"] == 1  # 0 where 1 is known
    changed = {key.partition(".")[2]: value for key, value in version.manifest.result["data"].items()}
    trained = Experiment.model_validate({"data": {**data, **changed}})
    assert made_up.validate(tmp_path, trained).manifest.result["rows"] == {"train": 10, "dev": 9, "test": 9}


def test_the_command_line_prints_the_version(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    named = json.dumps(home.experiment().model_dump(mode="json", include={"data", "dataset"}))
    assert main(["ingest", "--experiment", named, "--run", str(home.folder / "runs/cli")]) == ExitCode.DONE
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["data"]["data.path"] == result["artifact"] and result["version"] in result["artifact"]
