"""The strict check refuses every way in which a submission can be wrong."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from include.glue import TASKS
from include.stages import BadInput
from tasks.stages.pipeline.export.submission import PredictionsFile, check_submission, write_archive

GOOD = {
    "SST-2.tsv": b"index\tprediction\n0\t1\n1\t0\n2\t1\n",
    "STS-B.tsv": b"index\tprediction\n0\t0.000\n1\t4.125\n",
    "QNLI.tsv": b"index\tprediction\n0\tentailment\n1\tnot_entailment\n",
}
EXPECTED = {
    "SST-2.tsv": PredictionsFile(TASKS["SST-2"], np.arange(3), []),
    "STS-B.tsv": PredictionsFile(TASKS["STS-B"], np.arange(2), []),
    "QNLI.tsv": PredictionsFile(TASKS["QNLI"], np.arange(2), []),
}


def check(folder: Path, files: dict[str, bytes]) -> None:
    write_archive(folder / "submission.zip", files)
    check_submission(folder / "submission.zip", EXPECTED)


def test_good(tmp_path: Path) -> None:
    check(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("SST-2.tsv", b"1\t0\n", b"", r"submission.zip: SST-2.tsv has 2 predictions for 3 test rows"),
        ("SST-2.tsv", b"2\t1\n", b"2\t1\n3\t1\n", "has 4 predictions for 3"),
        ("SST-2.tsv", b"1\t0\n", b"0\t0\n", r"SST-2.tsv line 3: the index is '0', not 1"),
        ("SST-2.tsv", b"0\t1\n1\t0\n", b"1\t0\n0\t1\n", "line 2: the index is '1', not 0"),
        ("SST-2.tsv", b"1\t0\n", b"01\t0\n", "line 3: the index is '01', not 1"),
        ("SST-2.tsv", b"1\t0\n", b"1\t2\n", r"line 3: '2' is not a label of SST-2 \(0, 1\)"),
        ("SST-2.tsv", b"1\t0\n", b"1\t0.0\n", "'0.0' is not a label"),
        ("SST-2.tsv", b"1\t0\n", b"1\t\n", "'' is not a label"),
        ("SST-2.tsv", b"1\t0\n", b"1 0\n", "line 3 has 1 fields, not 2"),
        ("SST-2.tsv", b"1\t0\n", b"1\t0\t0\n", "line 3 has 3 fields, not 2"),
        ("SST-2.tsv", b"1\t0\n", b"\n", "line 3 has 1 fields"),
        ("SST-2.tsv", b"prediction", b"label", "line 1: the header is"),
        ("SST-2.tsv", b"index\tprediction\n", b"", "line 1: the header is"),
        ("SST-2.tsv", b"index", b"\xef\xbb\xbfindex", "line 1: the header is"),
        ("SST-2.tsv", b"\n", b"\r\n", "a single line feed"),
        ("SST-2.tsv", b"2\t1\n", b"2\t1", "a single line feed"),
        ("SST-2.tsv", b"1\t0\n", b"1\t\xff\n", "not UTF-8"),
        ("QNLI.tsv", b"not_entailment", b"1", "'1' is not a label of QNLI"),
        ("STS-B.tsv", b"4.125", b"5.100", "'5.100' is not a score from 0.0 to 5.0"),
        ("STS-B.tsv", b"4.125", b"-0.100", "'-0.100' is not a score"),
        ("STS-B.tsv", b"4.125", b"4.1", "'4.1' is not a score"),
        ("STS-B.tsv", b"4.125", b"nan", "'nan' is not a score"),
    ],
)  # fmt: skip
def test_one_thing_wrong(tmp_path: Path, file: str, old: bytes, new: bytes, message: str) -> None:
    assert old in GOOD[file]
    with pytest.raises(BadInput, match=message):
        check(tmp_path, GOOD | {file: GOOD[file].replace(old, new)})


@pytest.mark.parametrize("wrong", ["missing", "extra", "folder"])
def test_wrong_files(tmp_path: Path, wrong: str) -> None:
    files = dict(GOOD)
    moved = files.pop("QNLI.tsv")
    if wrong != "missing":
        files |= {"extra": {"QNLI.tsv": moved, "notes.txt": b""}, "folder": {"glue/QNLI.tsv": moved}}[wrong]
    with pytest.raises(BadInput, match=r"submission.zip must contain each of QNLI.tsv, SST-2.tsv, STS-B.tsv once"):
        check(tmp_path, files)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_twice(tmp_path: Path) -> None:
    write_archive(tmp_path / "submission.zip", GOOD)
    with zipfile.ZipFile(tmp_path / "submission.zip", "a") as archive:
        archive.writestr("QNLI.tsv", GOOD["QNLI.tsv"])
    with pytest.raises(BadInput, match=r"once: check QNLI\.tsv"):
        check_submission(tmp_path / "submission.zip", EXPECTED)


def test_no_zip_and_a_damaged_one(tmp_path: Path) -> None:
    archive = tmp_path / "submission.zip"
    with pytest.raises(BadInput, match="not a readable zip"):
        check_submission(archive, EXPECTED)
    write_archive(archive, GOOD)
    archive.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(BadInput, match="not a readable zip"):
        check_submission(archive, EXPECTED)


def test_glue_counts_without_gaps_and_own_files_as_they_are(tmp_path: Path) -> None:
    gap = np.array([0, 2, 3])
    content = b"index\tprediction\n0\t1\n2\t0\n3\t1\n"
    for name in ("SST-2", "movie-reviews"):
        write_archive(tmp_path / f"{name}.zip", {"a.tsv": content})
    check_submission(tmp_path / "movie-reviews.zip", {"a.tsv": PredictionsFile(TASKS["movie-reviews"], gap, [])})
    with pytest.raises(BadInput, match="must be numbered from 0 to 2 in order, as in GLUE"):
        check_submission(tmp_path / "SST-2.zip", {"a.tsv": PredictionsFile(TASKS["SST-2"], gap, [])})


def test_the_archive_is_flat_and_the_same_every_time(tmp_path: Path) -> None:
    write_archive(tmp_path / "one.zip", GOOD)
    write_archive(tmp_path / "two.zip", dict(reversed(GOOD.items())))
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert zipfile.ZipFile(tmp_path / "one.zip").namelist() == ["QNLI.tsv", "SST-2.tsv", "STS-B.tsv"]
