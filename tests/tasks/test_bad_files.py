"""Files that are not what their names say: each is refused with what it is and what to do, and none is waited for."""

from __future__ import annotations

import gzip
import os
import random
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.experiment import Experiment
from include.stages import BadInput
from tasks.sources import Source, open_source
from tasks.sources.documents import check_file as check_text_file
from tasks.sources.quarantine import problem
from tests.tasks.sources.test_sources import own, problems

pytestmark = pytest.mark.usefixtures("in_pieces")

TEXT = "sentence\tlabel\ngood\t1\n"


def refusal(source: Source, split: str = "train") -> str:
    with pytest.raises(BadInput) as caught:
        source.fingerprint()
        list(source.records(split))
    return str(caught.value)


def own_train(folder: Path, name: str, content: bytes) -> Source:
    for split in ("dev", "test"):
        (folder / f"{split}.tsv").write_text(TEXT)
    (folder / name).write_bytes(content)
    return own(folder, {}, train=name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.tsv", TEXT.encode("utf-16"), "is UTF-16, not UTF-8 text: convert it (iconv -f UTF-16 -t UTF-8)"),
        ("train.csv", TEXT.encode("utf-16-le"), "is UTF-16LE, not UTF-8 text"),
        ("train.tsv", TEXT.encode("utf-16-be"), "is UTF-16BE, not UTF-8 text"),
        ("train.tsv", TEXT.encode("utf-32"), "is UTF-32, not UTF-8 text: convert it (iconv -f UTF-32 -t UTF-8)"),
        ("train.tsv", TEXT.encode("utf-32-le"), "is UTF-32LE, not"),
        ("train.csv", "文\t标\n好\t1\n".encode("utf-32-be"), "is UTF-32BE, not"),
        ("train.tsv", gzip.compress(TEXT.encode()), "train.tsv is gzip, not text: unpack it (gunzip)"),
        ("train.csv", b"PK\x03\x04 and so on", "is a zip archive or a spreadsheet, not text: unpack it, or save the"),
        ("train.csv", b"PAR1\x15\x04", "is Parquet, not text: rename it so that the name ends in .parquet"),
        ("train.tsv", bytes(100), "contains NUL bytes instead of text, so it was not written completely"),
        ("train.csv", b"sentence;label\ngood;1\n", "no column 'sentence' for the role sentence; found: sentence;label "
         "(its columns seem to be separated by semicolons: use commas in a .csv file, tabs in a .tsv file, or "
         "name the character between columns in data.delimiter)"),
        ("train.csv", TEXT.encode(), "(its columns seem to be separated by tabs: use commas in a .csv file"),
        ("train.tsv", b"sentence,label\ngood,1\n", "(its columns seem to be separated by commas"),
        ("train.csv", "\u200bsentence,label\na,1\n".encode(),
         r"('\u200bsentence' differs from 'sentence' in invisible characters only: type the name again)"),
        ("train.csv", b"\xef\xbb\xbf\xef\xbb\xbfsentence,label\na,1\n", r"('\ufeffsentence' differs from 'sentence'"),
        ("train.tsv", "sentence\tlabel\u00a0\na\t1\n".encode(), r"('label\xa0' differs from 'label'"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    said = refusal(own_train(tmp_path, name, content))
    assert message in said and str(tmp_path / name) in said


def test_a_header_of_glue_gets_the_same_hint(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").write_bytes(b"sentence,label\ngood,1\n")
    data = {"task": "SST-2", "source": "glue", "path": str(tmp_path)}
    assert "separated by commas" in refusal(open_source(Experiment.model_validate({"data": data})))


@pytest.mark.parametrize(("make", "message"), [(Path.mkdir, "is a folder"), (os.mkfifo, "is a pipe, a socket or a")])
def test_what_is_no_file_is_not_opened(tmp_path: Path, make: object, message: str) -> None:
    assert callable(make)
    source = own_train(tmp_path, "train.tsv", TEXT.encode())
    (tmp_path / "train.tsv").unlink()
    make(tmp_path / "train.tsv")
    said = refusal(source)
    assert message in said and "train.tsv" in said and "put the file there, or correct data.path" in said
    with pytest.raises(BadInput, match=message):
        check_text_file(tmp_path / "train.tsv", "pretraining.text")


def test_text_to_learn_from_has_the_same_hints(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes("a document\n".encode("utf-16"))
    with pytest.raises(BadInput, match=r"text\.txt is UTF-16, not UTF-8 text: convert it"):
        check_text_file(file, "pretraining.text")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("text", "a document\n")
    with pytest.raises(BadInput, match=r"text\.txt is a zip archive"):
        check_text_file(file, "pretraining.text")


@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_a_damaged_parquet_page_is_bad_input(tmp_path: Path, compression: str) -> None:
    texts = ["".join(random.Random(row).choices("abcdefgh ", k=60)) for row in range(2000)]
    table = pa.table({"sentence": texts, "label": ["1"] * len(texts)})
    pq.write_table(table, tmp_path / "whole.parquet", compression=compression, use_dictionary=False)
    content = bytearray((tmp_path / "whole.parquet").read_bytes())
    content[1000:5000] = b"\xff" * 4000
    said = refusal(own_train(tmp_path, "train.parquet", bytes(content)))
    assert "train.parquet: the data from row 1 on cannot be read" in said and "write the file again" in said


def test_a_broken_disk_is_not_the_files_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"sentence": ["a"], "label": ["1"]}), tmp_path / "train.parquet")

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", fail)
    with pytest.raises(OSError, match="Input/output error"):
        list(own(tmp_path, {}, train="train.parquet").records("train"))


def test_a_nul_in_parquet_is_told_as_in_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sentence": ["a\0b", "c"], "label": ["1", "0"]}), tmp_path / "train.parquet")
    assert problems(own(tmp_path, {}, train="train.parquet")) == [(1, "broken encoding: contains a NUL byte")]


@pytest.mark.parametrize("text", ["", " \u00a0\t", "\u200b\u200d", "\ufeff", "\u2800\u3164", "\U000e0020\u2060 \u00ad"])
def test_text_of_which_nothing_can_be_seen_is_empty(tmp_path: Path, text: str) -> None:
    pq.write_table(pa.table({"sentence": [text, "👩\u200d💻"], "label": ["1", "0"]}), tmp_path / "train.parquet")
    data = {"task": "SST-2", "source": "files", "path": str(tmp_path), "train": "train.parquet"}
    experiment = Experiment.model_validate({"data": data})
    found = [problem(record, experiment.task, "train") for record in open_source(experiment).records("train")]
    assert found == ["empty text", ""]


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        ("3.5", ""), (" 4 ", ""), ("+1e0", ""), (".5", ""),
        ("1_0", "score '1_0' is not a number"),
        ("٣", "score '٣' is not a number"),
        ("3,5", "score '3,5' is not a number: write 3.5, with a decimal point"),
        ("1,000.5", "score '1,000.5' is not a number"),
        ("inf", "score inf is not between 0 and 5"),
        ("", "score '' is not a number"),
    ],
)  # fmt: skip
def test_scores_are_numbers_as_programs_write_them(tmp_path: Path, score: str, reason: str) -> None:
    (tmp_path / "train.tsv").write_text(f"sentence\tlabel\na\t{score}\n")
    data = {"task": "regression", "source": "files", "path": str(tmp_path), "score_range": (0, 5)}
    experiment = Experiment.model_validate({"data": data})
    [record] = open_source(experiment).records("train")
    assert problem(record, experiment.task, "train") == reason
