from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.experiment import Experiment
from include.fields.data import Data
from include.glue import SPLITS, TASKS
from include.stages import BadInput
from tasks.sources import Record, Source, open_source
from tasks.sources.files import OwnFiles
from tasks.sources.normalize import overlap_key, text_key
from tasks.sources.published import BundledCorpus, GlueFolder, split_of

pytestmark = pytest.mark.usefixtures("in_pieces")

HEADER = b"sentence\tlabel\n"


def sst2(folder: Path, train: bytes = b"good\t1\nbad\t0\n", header: bytes = HEADER) -> GlueFolder:
    place = folder / "SST-2"
    place.mkdir(parents=True, exist_ok=True)
    (place / "train.tsv").write_bytes(header + train)
    (place / "dev.tsv").write_bytes(HEADER + b"fine\t1\n")
    (place / "test.tsv").write_bytes(b"index\tsentence\n0\tso\n1\tso so\n")
    return GlueFolder(str(folder), TASKS["SST-2"])


def own(folder: Path, columns: dict[str, str], **files: str) -> Source:
    data = {"task": "SST-2", "source": "files", "path": str(folder), "columns": columns, **files}
    return open_source(Experiment.model_validate({"data": data}))


def brief(records: list[Record]) -> list[tuple[object, ...]]:
    return [(record.row, record.line, record.sentences, record.label) for record in records]


def problems(source: Source, split: str = "train") -> list[tuple[int, str]]:
    return [(record.line, record.problem) for record in source.records(split) if record.problem]


def test_glue_rows_have_row_and_line_numbers(tmp_path: Path) -> None:
    source = sst2(tmp_path)
    assert brief(list(source.records("train"))) == [(0, 2, ("good",), "1"), (1, 3, ("bad",), "0")]
    assert [record.index for record in source.records("test")] == ["0", "1"]


def test_a_task_folder_alone_is_found(tmp_path: Path) -> None:
    sst2(tmp_path)
    assert len(list(GlueFolder(str(tmp_path / "SST-2"), TASKS["SST-2"]).records("dev"))) == 1


def test_cola_has_no_header_and_no_last_newline(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_bytes(b'gj04\t1\t\tA "quoted word\ngj04\t0\t*\tBook the.')
    source = GlueFolder(str(tmp_path), TASKS["CoLA"])
    assert brief(list(source.records("dev"))) == [(0, 1, ('A "quoted word',), "1"), (1, 2, ("Book the.",), "0")]


def test_pairs_come_from_their_columns(tmp_path: Path) -> None:
    layout = TASKS["STS-B"].splits["train"].columns
    (tmp_path / "train.tsv").write_text("\t".join(layout) + "\n" + "\t".join([*"0123456", "a", "b", "4.2"]) + "\n")
    source = GlueFolder(str(tmp_path), TASKS["STS-B"])
    assert brief(list(source.records("train"))) == [(0, 2, ("a", "b"), "4.2")]


def test_broken_lines_are_told_with_their_number(tmp_path: Path) -> None:
    lines = [b"good\t1", b"too\tmany\t1", b"few", b"caf\xe9\t1", b"a\0b\t1", b"", b"last\t0", b"", b""]
    found = problems(sst2(tmp_path, b"\n".join(lines)))
    assert found == [
        (3, "wrong number of fields: 3 instead of 2"),
        (4, "wrong number of fields: 1 instead of 2"),
        (5, "broken encoding: byte 0xe9 is not UTF-8"),
        (6, "broken encoding: contains a NUL byte"),
        (7, "wrong number of fields: 1 instead of 2"),  # a blank line between rows; those at the end are none
    ]


@pytest.mark.parametrize(
    ("name", "header", "tail"),
    [
        ("train.csv", "sentence,label", ",\n,,,\n\n,\n"),
        ("train.csv", "sentence,label,,", ",,,\n,,,\n,,,"),
        ("train.tsv", "sentence\tlabel", "\t\n\t\n\n\t\t\n\n"),
    ],
)
def test_blank_rows_that_a_spreadsheet_leaves_at_the_end_are_ignored_and_told(
    tmp_path: Path, name: str, header: str, tail: str
) -> None:
    row = header.replace("sentence", "good").replace("label", "1")
    (tmp_path / name).write_text(f"{header}\n{row}\n{tail}")
    source = own(tmp_path, {}, train=name)
    assert brief(list(source.records("train"))) == [(0, 2, ("good",), "1")]
    assert source.remarks("train") == [f"{tmp_path / name}: 3 blank rows at the end were ignored"]


def test_blank_rows_between_rows_are_rows_and_so_are_empty_texts_in_quotes(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("sentence,label\n,\n\ngood,1\n")
    assert brief(list(own(tmp_path, {}, train="train.csv").records("train"))) == [
        (0, 2, ("",), ""), (1, 3, (), ""), (2, 4, ("good",), "1"),
    ]  # fmt: skip
    (tmp_path / "test.csv").write_text('sentence\ngood\n""\n""\n\n')
    assert brief(list(own(tmp_path, {}, test="test.csv").records("test"))) == [
        (0, 2, ("good",), ""), (1, 3, ("",), ""), (2, 4, ("",), ""),
    ]  # fmt: skip


def test_a_value_in_a_column_without_a_name_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("sentence,label,\ngood,1,\nbad,0,why\n")
    assert problems(own(tmp_path, {}, train="train.csv")) == [(3, "wrong number of fields: 3 instead of 2")]


def test_a_byte_order_mark_and_mixed_line_ends_are_put_right_and_told(tmp_path: Path) -> None:
    source = sst2(tmp_path, b"good\t1\r\nbad\t0\n", b"\xef\xbb\xbfsentence\tlabel\r\n")
    assert brief(list(source.records("train")))[1] == (1, 3, ("bad",), "0")
    assert [remark.rsplit(",")[0].split(" ", 1)[1] for remark in source.remarks("train")] == [
        "starts with a byte order mark",
        "has two kinds of line ends (LF and CRLF)",
    ]
    assert source.remarks("dev") == []


@pytest.mark.parametrize(("name", "dialect"), [("train.csv", "excel"), ("train.tsv", "excel-tab")])
def test_what_pythons_own_csv_writes_is_nothing_unusual(tmp_path: Path, name: str, dialect: str) -> None:
    with (tmp_path / name).open("w", newline="") as stream:
        rows = [["sentence", "label"], ["two\nlines" if dialect == "excel" else "one", "1"], ["plain", "0"]]
        csv.writer(stream, dialect).writerows(rows)
    source = own(tmp_path, {}, train=name)
    assert [record.sentences[0] for record in source.records("train")] == [row[0] for row in rows[1:]]
    assert source.remarks("train") == []


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    text = "one\u2028still one\x0bstill\x85one"
    assert next(iter(sst2(tmp_path, f"{text}\t1\n".encode()).records("train"))).sentences == (text,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (HEADER, "has no data rows"),
        (HEADER + b"\n\n", "has no data rows"),
        (b"good\t1\nbad\t0\n", "expected the tab-separated columns sentence, label, in this order; found: good, 1"),
        (b"label\tsentence\n1\tgood\n", "found: label, sentence"),
        (b"sentence\tlabel\tmore\ngood\t1\tx\n", "found: sentence, label, more"),
        (b"sentence\ngood\n", "found: sentence"),
        (b"sentence,label\ngood,1\n", "found: sentence,label"),
        ("sentence\tlabel\ngood\t1\n".encode("utf-16"), "is UTF-16, not UTF-8 text: convert it"),
        ("sentence\tlabel\ngood\t1\n".encode("utf-16-le"), "is UTF-16"),
        (b"sent\xe9nce\tlabel\n", "found: broken encoding"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    source = sst2(tmp_path)
    source.files["train"][0].write_bytes(content)
    with pytest.raises(BadInput, match=r"train\.tsv") as caught:
        list(source.records("train"))
    assert message in str(caught.value)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    source = sst2(tmp_path)
    source.files["dev"][0].unlink()
    with pytest.raises(BadInput, match=r"SST-2/dev\.tsv is missing: put the file there"):
        source.fingerprint()
    with pytest.raises(BadInput, match=r"nowhere is not a folder: name the one that contains SST-2/train\.tsv"):
        GlueFolder(str(tmp_path / "nowhere"), TASKS["SST-2"])


def test_fingerprint_follows_the_content(tmp_path: Path) -> None:
    first = sst2(tmp_path / "a").fingerprint()
    assert sst2(tmp_path / "b").fingerprint() == first
    assert sst2(tmp_path / "b", b"good\t1\n").fingerprint() != first


def test_own_csv_has_quotes_and_mapped_columns(tmp_path: Path) -> None:
    with (tmp_path / "train.csv").open("w", newline="") as stream:
        rows = [["id", "review", "stars"], ["1", 'two\nlines, and "quotes"', "1"], ["2", "plain", "0"]]
        csv.writer(stream).writerows(rows)
    source = own(tmp_path, {"sentence": "review", "label": "stars"}, train="train.csv")
    assert brief(list(source.records("train"))) == [
        (0, 2, ('two\nlines, and "quotes"',), "1"),
        (1, 4, ("plain",), "0"),
    ]


def test_own_csv_tells_broken_rows(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes(b"sentence,label\ncaf\xe9,1\na,b,1\nfine,1\n")
    found = problems(own(tmp_path, {}, train="train.csv"))
    assert found == [(2, "broken encoding: byte 0xe9 is not UTF-8"), (3, "wrong number of fields: 3 instead of 2")]


@pytest.mark.parametrize("body", ['"never closed,1\nnext,0\n', '"closed"late,1\nnext,0\n'])
def test_unbalanced_quotes_in_csv_are_refused(tmp_path: Path, body: str) -> None:
    (tmp_path / "train.csv").write_text(f"sentence,label\nfine,1\n{body}")
    with pytest.raises(BadInput, match=r"train\.csv line 3: unbalanced quotes .* double every quote inside"):
        list(own(tmp_path, {}, train="train.csv").records("train"))


def test_own_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"label": [1, None], "text": ["good", None]}), tmp_path / "train.parquet")
    source = own(tmp_path, {"sentence": "text"}, train="train.parquet")
    assert brief(list(source.records("train"))) == [(0, 1, ("good",), "1"), (1, 2, ("",), "")]


def test_own_parquet_with_numbers_for_text_or_damaged_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"label": [1], "sentence": [3]}), tmp_path / "train.parquet")
    (tmp_path / "dev.parquet").write_bytes(b"PAR1 and then nothing")
    source = own(tmp_path, {}, train="train.parquet", dev="dev.parquet")
    with pytest.raises(BadInput, match="the column 'sentence' has the type int64, but it must be text"):
        list(source.records("train"))
    with pytest.raises(BadInput, match=r"dev\.parquet is not a Parquet file"):
        list(source.records("dev"))


@pytest.mark.parametrize("name", ["train.csv", "train.parquet"])
def test_a_missing_own_column_names_what_is_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.csv").write_text("text,label\ngood,1\n")
    pq.write_table(pa.table({"text": ["good"], "label": [1]}), tmp_path / "train.parquet")
    with pytest.raises(
        BadInput, match=r"no column 'sentence' for the role sentence; found: text, label. Name the column"
    ):
        list(own(tmp_path, {}, train=name).records("train"))


def test_own_test_needs_no_labels(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("sentence\tlabel\nso\t1\n")
    (tmp_path / "bare.tsv").write_text("sentence\nso\n")
    for name in ("test.tsv", "bare.tsv"):
        assert brief(list(own(tmp_path, {}, test=name).records("test"))) == [(0, 2, ("so",), "")]


def test_own_files_of_unknown_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"train\.xlsx: the names of a table's files must all end in"):
        OwnFiles(Data(task="SST-2", source="files", path=str(tmp_path), train="train.xlsx"), TASKS["SST-2"])


@pytest.fixture
def corpus(tmp_path: Path) -> BundledCorpus:
    """The bundled source over a small file in the corpus's layout."""
    lines = [f"{number}\t{number % 9 - 4}\tsentence number {number}\r\n" for number in range(500)]
    lines += ["900\t0.5\tneutral\r\n", "901\t0.6\tTwice!\r\n", "902\t-3\ttwice\r\n"]
    path = tmp_path / "corpus.txt"
    path.write_bytes("".join(lines).encode())
    return BundledCorpus(path)


def test_the_bundled_split_is_fixed_and_keeps_equal_sentences_together(corpus: BundledCorpus) -> None:
    splits = {split: list(corpus.records(split)) for split in SPLITS}
    assert [len(splits[split]) for split in SPLITS] == pytest.approx([358, 45, 45], abs=20)
    assert split_of("Twice!") == split_of("twice")
    assert [split_of(text) for text in ("a fine film", "dull", "a bore")] == list(SPLITS)
    for records in splits.values():
        assert [record.row for record in records] == list(range(len(records)))


def test_bundled_labels_are_the_rating_s_sign_and_neutral_rows_are_dropped(corpus: BundledCorpus) -> None:
    records = [record for split in ("train", "dev") for record in corpus.records(split)]
    assert all(record.label == str(int(float(record.raw.split("\t")[1]) > 0)) for record in records)
    assert not any(record.sentences == ("neutral",) for record in records)
    assert {record.label for record in corpus.records("test")} == {""}


TOLD_APART = [
    ("rated 1.5", "rated 15"), ("rated .5", "rated 5"), ("-5", "5"), ("10\u00b2", "102"), ("1,5", "15"),
    ("good :)", "good :("), ("C++", "C"), ("C#", "C"), ("great!", "great?"), ("!!!", "???"), ("...", "--"),
    ("great 😀", "great 😡"), ("हिन्दी", "हिन्दा"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), TOLD_APART)
def test_texts_that_mean_something_else_are_not_equal(one: str, other: str) -> None:
    assert text_key((one,)) != text_key((other,))
    assert overlap_key((one,)) != overlap_key((other,))


@pytest.mark.parametrize(
    ("one", "other", "same_text"),
    [
        ("It 's   a  Fine film !", "it's a fine film!", True),
        ("It's a `` fine '' film , is n't it ?", "it's a \u201cfine\u201d film \u2013 isn\u2019t it?", False),
        ("1 23", "12 3", False),
        ("a must-see .", "A must see", False),
    ],
)
def test_a_tokenized_corpus_overlaps_with_its_source(one: str, other: str, same_text: bool) -> None:
    assert overlap_key((one,)) == overlap_key((other,))
    assert (text_key((one,)) == text_key((other,))) == same_text


def test_keys_are_stable_64_bit_numbers() -> None:
    assert text_key(("A  b.",)) == text_key(("a b .",)) == -405331939141696917
    assert text_key(("a", "b")) != text_key(("a b",))


def test_records_are_read_in_a_stream(tmp_path: Path) -> None:
    """The first record is there before a later line is looked at."""
    (tmp_path / "train.csv").write_text('sentence,label\nfine,1\n"never closed,1\n')
    first = next(iter(own(tmp_path, {}, train="train.csv").records("train")))
    assert dataclasses.asdict(first)["sentences"] == ("fine",)
