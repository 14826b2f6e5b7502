"""Texts compressed with gzip and zstd: the rows of the plain file, and what is wrong with the compression."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from include.folders import Dropped
from include.stages import BadInput
from tasks.sources import limits, open_source
from tasks.sources.compression import unpacked
from tasks.sources.pieces import about_rows
from tasks.sources.table import chunks, column_rows, same_format
from tasks.sources.text_files import check_file, format_of, remarks
from tests.tasks.sources.test_several_files import own, rows_of

CONTENTS = {
    ".tsv": b"\xef\xbb\xbfsentence\tlabel\r\nfine\t1\ncaf\xe9\t0\r\n\t\n\n",
    ".csv": b'sentence,label\n"two\nlines, ""quoted""",1\nx\n,\n,\n',
    ".jsonl": b'\xef\xbb\xbf{"sentence": "a", "label": 1}\n\n{"sentence": "b"}\nbroken\n{"sentence": "caf\xe9"}',
}


def compress(content: bytes, end: str) -> bytes:
    if end == ".gz":
        return gzip.compress(content)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("end", [".gz", ".zst", ".GZ"])
@pytest.mark.parametrize("suffix", CONTENTS)
def test_the_rows_are_those_of_the_plain_file(tmp_path: Path, suffix: str, end: str) -> None:
    plain, packed = tmp_path / f"rows{suffix}", tmp_path / f"rows{suffix}{end}"
    plain.write_bytes(CONTENTS[suffix])
    packed.write_bytes(compress(CONTENTS[suffix], end.lower()))
    assert format_of(packed) == suffix
    found, expected = (list(column_rows(file, ["sentence", "label"])) for file in (packed, plain))
    assert found == expected and len(found) >= 3
    assert [remark.replace(end, "") for remark in remarks(packed, "utf-8")] == remarks(plain, "utf-8")


@pytest.mark.parametrize("end", [".gz", ".zst"])
def test_a_stream_in_several_pieces_is_read_to_its_end(tmp_path: Path, end: str) -> None:
    lines = [f"sentence number {number}\t1\n".encode() for number in range(50_000)]
    pieces = [b"sentence\tlabel\n", b"".join(lines[:20_000]), b"".join(lines[20_000:])]
    (tmp_path / f"train.tsv{end}").write_bytes(b"".join(compress(piece, end) for piece in pieces))
    source = open_source(own(tmp_path))
    assert 20_000 < about_rows(source.files["train"]) < 100_000
    assert [text for *_, text in rows_of(source)] == [line.split(b"\t")[0].decode() for line in lines]


@pytest.mark.parametrize(("end", "codec"), [(".gz", "gzip"), (".zst", "zstd")])
def test_a_damaged_stream_is_named_with_the_remedy(tmp_path: Path, end: str, codec: str) -> None:
    file = tmp_path / f"rows.csv{end}"
    whole = compress(b"sentence,label\n" + b"".join(b"%d,1\n" % (number**3) for number in range(100_000)), end)
    flipped = bytearray(whole)
    flipped[len(whole) // 2 :] = flipped[len(whole) // 2 :][::-1]
    damaged = {
        "truncated": whole[:-5],
        "cut": whole[: len(whole) // 2],
        "flipped": bytes(flipped),
        "other": b"a,b\nc,d\n",
    }
    for content in damaged.values():
        file.write_bytes(content)
        with pytest.raises(
            BadInput,
            match=rf"rows\.csv{end} cannot be unpacked as {codec}, as its name says .*: write or copy it again",
        ):
            list(column_rows(file, ["sentence"]))
    file.write_bytes(b"")
    with pytest.raises(BadInput, match=rf"rows\.csv{end} is empty"):
        check_file(file)
    file.write_bytes(compress(b"", end))
    with pytest.raises(BadInput, match=rf"rows\.csv{end} is empty"):
        check_file(file)


def test_what_is_packed_under_another_name_is_told_the_right_one(tmp_path: Path) -> None:
    for end, remedy in ((".gz", r"is gzip, .* ends in \.tsv\.gz$"), (".zst", r"is zstd, .* ends in \.tsv\.zst$")):
        (tmp_path / "rows.tsv").write_bytes(compress(CONTENTS[".tsv"], end))
        with pytest.raises(BadInput, match=remedy):
            check_file(tmp_path / "rows.tsv")
        (tmp_path / f"twice.tsv{end}").write_bytes(compress((tmp_path / "rows.tsv").read_bytes(), end))
        with pytest.raises(BadInput, match=r"not text: unpack it \(\w+\)$"):
            check_file(tmp_path / f"twice.tsv{end}")


@pytest.mark.parametrize("name", ["rows.parquet.gz", "rows.gz", "rows.xlsx.zst"])
def test_only_texts_are_packed(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        BadInput, match=rf"\.gz or \.zst may follow the end of a text\), but there is \.{name.partition('.')[2]}"
    ):
        same_format(tmp_path, [tmp_path / name])


def test_a_row_is_no_longer_than_in_a_plain_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BYTES", 1 << 20)
    for name in ("rows.tsv.gz", "rows.csv.zst", "rows.jsonl.gz"):
        (tmp_path / name).write_bytes(compress(b"a\n" + b"x" * (1 << 24), Path(name).suffix))
        with pytest.raises(BadInput, match=rf"{name}: line 2 has 1 MiB or more"):
            list(column_rows(tmp_path / name, ["a"]))


def test_plain_and_packed_files_are_one_table_and_empty_ones_have_no_rows(tmp_path: Path) -> None:
    for name, content in {
        "1.csv": b"text,id\na,1\n",
        "2.csv.gz": b"text,id\nb,2\n",
        "3.csv.zst": b"text,id\nc,3\n",
    }.items():
        (tmp_path / name).write_bytes(content if name == "1.csv" else compress(content, Path(name).suffix))
    (tmp_path / "4.csv.gz").write_bytes(compress(b"", ".gz"))
    files = same_format(tmp_path, sorted(tmp_path.iterdir()))
    assert [file.name for file in files] == ["1.csv", "2.csv.gz", "3.csv.zst"]
    rows = [row for file in files for chunk in chunks(file, "text") for row in chunk.rows.to_pylist()]
    assert rows == [{"text": text, "id": number} for text, number in zip("abc", "123", strict=True)]


def test_a_link_in_a_drop_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real.tsv.gz").write_bytes(compress(CONTENTS[".tsv"], ".gz"))
    (tmp_path / "link.tsv.gz").symlink_to(tmp_path / "real.tsv.gz")
    check_file(Dropped(tmp_path / "real.tsv.gz"))
    with pytest.raises(BadInput, match=r"link\.tsv\.gz"):
        check_file(Dropped(tmp_path / "link.tsv.gz"))


def test_the_packed_stream_stays_open(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.gz").write_bytes(compress(b"abc", ".gz"))
    with (tmp_path / "a.tsv.gz").open("rb") as stream:
        for _ in range(2):
            stream.seek(0)
            assert unpacked(tmp_path / "a.tsv.gz", stream).read() == b"abc"
        assert not stream.closed
