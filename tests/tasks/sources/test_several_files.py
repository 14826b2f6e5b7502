"""Splits of several files: patterns and folders, how their rows are counted, and what is wrong with one of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.experiment import Experiment
from include.glue import SPLITS
from include.named_experiments import build
from include.stages import BadInput
from tasks.sources import Source, open_source

pytestmark = pytest.mark.usefixtures("in_pieces")


def own(path: Path | str, **data: Any) -> Experiment:
    given = {"task": "classification", "source": "files", "labels": ["0", "1"], "path": str(path), **data}
    return build({"data": given}, "mine")


def rows_of(source: Source, split: str = "train") -> list[tuple[int, str, int, str]]:
    """The number, file, line and text of each row."""
    return [
        (found.row, Path(found.file).name, found.line, "".join(found.sentences) or found.problem)
        for found in source.records(split)
    ]


def write(file: Path, *texts: str, end: str = "") -> None:
    """A file with these texts in the format that its name says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        pq.write_table(pa.table({"sentence": list(texts), "label": ["1"] * len(texts)}), file)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps({"sentence": text, "label": 1}) + "\n" for text in texts) + end)
    else:
        mark = "," if file.suffix == ".csv" else "\t"
        rows = [("sentence", "label"), *((text, 1) for text in texts)]
        file.write_text("".join(f"{text}{mark}{label}\n" for text, label in rows) + end)


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet"])
@pytest.mark.parametrize("named", ["train-*.{}", "days", "**/train-[0-9]*.{}"])
def test_a_split_is_a_pattern_or_a_folder(tmp_path: Path, suffix: str, named: str) -> None:
    folder = tmp_path / "days" if named == "days" else tmp_path
    for number, texts in (("10", ["a", "b"]), ("11", []), ("9", ["c"])):
        write(folder / f"train-{number}.{suffix}", *texts)
    for ignored in (".train-1", "_train-1"):
        write(folder / f"{ignored}.{suffix}", "hidden")
    (folder / "_SUCCESS").touch()
    (folder / f"train-0.{suffix}").touch()  # a part without rows
    write(tmp_path / "dev.tsv", "d")
    source = open_source(own(tmp_path, train=named.format(suffix)))
    first = {"tsv": 2, "csv": 2, "jsonl": 1, "parquet": 1}[suffix]
    assert rows_of(source) == [
        (0, f"train-10.{suffix}", first, "a"),
        (1, f"train-10.{suffix}", first + 1, "b"),
        (2, f"train-9.{suffix}", first, "c"),
    ]
    assert rows_of(source, "dev") == [(0, "dev.tsv", 2, "d")] and source.splits == ("train", "dev")
    assert source.file("train") == str(tmp_path / named.format(suffix))


def test_blank_rows_at_the_end_of_each_file_are_no_rows(tmp_path: Path) -> None:
    write(tmp_path / "train-1.csv", "a", end=",\n,\n")
    write(tmp_path / "train-2.csv", "b", end=",\n")
    source = open_source(own(tmp_path, train="train-*.csv"))
    assert rows_of(source) == [(0, "train-1.csv", 2, "a"), (1, "train-2.csv", 2, "b")]
    assert source.remarks("train") == [
        f"{tmp_path}/train-1.csv: 2 blank rows at the end were ignored",
        f"{tmp_path}/train-2.csv: 1 blank rows at the end were ignored",
    ]


@pytest.mark.parametrize("named", ["", "*.jsonl", "**/*.jsonl"])
def test_files_with_all_rows_are_split_as_one(tmp_path: Path, named: str) -> None:
    texts = [f"text number {number}" for number in range(60)]
    write(tmp_path / "all.jsonl", *texts)
    for at in range(0, 60, 20):
        write(tmp_path / f"parts/{at}.jsonl", *texts[at : at + 20])
    one, several = open_source(own(tmp_path / "all.jsonl")), open_source(own(tmp_path / "parts" / named))
    for split in SPLITS:
        found = [(record.row, record.sentences) for record in one.records(split)]
        assert found == [(record.row, record.sentences) for record in several.records(split)]
    assert several.fingerprint().endswith("-1")


def test_a_folder_with_a_file_of_a_split_is_not_one_table(tmp_path: Path) -> None:
    write(tmp_path / "rows.tsv", "a")
    write(tmp_path / "dev.csv", "b")
    with pytest.raises(BadInput, match=r"train\.tsv is missing: put the file there"):
        list(open_source(own(tmp_path)).records("train"))
    (tmp_path / "dev.csv").unlink()
    assert len(rows_of(open_source(own(tmp_path)))) == 1
    with pytest.raises(BadInput, match=r"data\.dev is empty: name its file"):
        open_source(own(tmp_path, dev=""))


def test_a_default_name_is_also_the_folder_that_spark_writes(tmp_path: Path) -> None:
    for split in SPLITS:
        write(tmp_path / f"{split}.parquet/part-00000.parquet", split)
        (tmp_path / f"{split}.parquet/_SUCCESS").touch()
    source = open_source(own(tmp_path))
    assert {split: rows_of(source, split) for split in SPLITS} == {
        split: [(0, "part-00000.parquet", 1, split)] for split in SPLITS
    }


def test_a_name_with_the_characters_of_a_pattern_is_a_file_if_there_is_one(tmp_path: Path) -> None:
    folder = tmp_path / "[a-z]*"
    for name in ("train*.tsv", "train-1.tsv", "dev.tsv", "dev-1.tsv"):
        write(folder / name, name)
    source = open_source(own(folder, train="train*.tsv", dev="dev*.tsv"))
    assert rows_of(source) == [(0, "train*.tsv", 2, "train*.tsv")]
    assert [file for _, file, *_ in rows_of(source, "dev")] == ["dev-1.tsv", "dev.tsv"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"b.csv": "sentence,class\nx,1\n"}, r"b\.csv has other columns than .*a\.csv.*'class', 'label'"),
        ({"b.csv": "label,sentence\n1,x\n"}, r"b\.csv has other columns .*their order differs"),
        ({"b.tsv": "sentence\tlabel\nx\t1\n"}, r"\.csv, \.tsv$"),
        ({"b.csv": 'sentence,label\nx,1\n"y,1\n'}, r"b\.csv line 3: unbalanced quotes"),
        ({"b.csv": "\0\0\0"}, r"b\.csv contains NUL bytes"),
        ({"a.csv": "sentence,label\n", "b.csv": "sentence,label\n"}, r"\*\.csv has no data rows"),
        ({"a.csv": ""}, r"a\.csv is empty"),
        ({"a.csv": None}, r"\*\.csv: the names of a table's files must all end in .* but there is no file"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_one_file_names_it(tmp_path: Path, files: dict[str, str | None], message: str) -> None:
    for name, content in {"a.csv": "sentence,label\nx,1\n", **files}.items():
        if content is not None:
            (tmp_path / name).write_text(content)
    pattern = "*" if "b.tsv" in files else "*.csv"
    with pytest.raises(BadInput, match=message):
        list(open_source(own(tmp_path / pattern)).records("train"))


def test_the_fingerprint_follows_names_order_and_content(tmp_path: Path) -> None:
    def fingerprint(**files: str) -> str:
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        for name, text in {"train_1": "a", "train_2": "b", "dev_1": "c", **files}.items():
            write(tmp_path / f"data/{name}.tsv", *text)
        return open_source(own(tmp_path / "data", train="train_*.tsv", dev="dev_*.tsv")).fingerprint()

    changed = [
        fingerprint(**files)
        for files in (
            {},
            {"train_1": "b", "train_2": "a"},
            {"train_3": "d"},
            {"dev_0": "b"},
            {"train_2": "x"},
        )
    ]
    assert len(set(changed)) == 5
    assert fingerprint() == changed[0]
    (tmp_path / "data/train_2.tsv").rename(tmp_path / "data/train_3.tsv")
    assert open_source(own(tmp_path / "data", train="train_*.tsv", dev="dev_*.tsv")).fingerprint() != changed[0]


def test_links_are_followed_as_for_a_single_file_but_not_into_folders(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere/b.tsv", "b")
    write(tmp_path / "data/a.tsv", "a")
    (tmp_path / "data/c.tsv").symlink_to(tmp_path / "elsewhere/b.tsv")
    (tmp_path / "data/gone.tsv").symlink_to(tmp_path / "nowhere.tsv")
    (tmp_path / "data/folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data/loop").symlink_to(tmp_path / "data")
    found = rows_of(open_source(own(tmp_path / "data/**/*.tsv")))
    assert [file for _, file, *_ in found] == ["a.tsv", "c.tsv"]
