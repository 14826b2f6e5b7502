from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.sources.documents import LONGEST_LINE, check_file, documents, sentences, splits
from tasks.stages.pipeline.pretrain.blocks import BlockWriter
from tests.tasks.stages.pipeline.pretrain.samples import CLS, PIECES, SEP, text, tiny_encoder


def write(folder: Path, content: bytes, name: str = "text.txt") -> Path:
    file = folder / name
    file.write_bytes(content)
    return file


def test_a_document_a_line_without_tags_and_blank_lines(tmp_path: Path) -> None:
    content = "\ufeffone<br />two <BR>\r\n\n \t\n<p class='x'>3 < 5</p>\n<br/>\nlast: ü".encode()
    expected = ["one two", "3 < 5", "last: ü"]
    assert list(documents(write(tmp_path, content))) == expected
    assert list(documents(write(tmp_path, gzip.compress(content), "text.txt.gz"))) == expected
    assert list(documents(write(tmp_path, gzip.compress(content), "packed"))) == expected


LINE_3 = "text.txt line 3"


@pytest.mark.parametrize(("content", "message"), [
    (b"one\ntwo\n\xff\xfe\n", f"{LINE_3}: byte 0xff is not UTF-8: convert"),
    (b"one\ntwo\nth\0ree\n", f"{LINE_3} contains a NUL byte"),
    (b"one\ntwo\n" + b"x" * (LONGEST_LINE + 1), f"{LINE_3} is longer than 1,048,576 bytes: write one document"),
    (gzip.compress(b"one\ntwo\nthree" * 1000)[:-20], "text.txt line .*: the gzip data is damaged"),
    (b"\x1f\x8b this is no gzip", "text.txt line 1: the gzip data is damaged"),
    (b"", "text.txt contains 0 documents, one per line: at least two are needed"),
    (b"\n \n<br>\none\n", "text.txt contains 1 documents"),
])  # fmt: skip
def test_what_is_no_text_is_refused_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        splits(write(tmp_path, content), seed=1)


def test_a_line_may_be_as_long_as_the_limit(tmp_path: Path) -> None:
    assert [len(line) for line in documents(write(tmp_path, b"x" * (LONGEST_LINE - 1) + b"\n"))] == [LONGEST_LINE - 1]


def test_a_file_must_be_there_and_what_its_name_says(tmp_path: Path) -> None:
    for missing in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(BadInput, match=r"put the text there, or correct pretraining.text"):
            check_file(missing, "pretraining.text")
    with pytest.raises(BadInput, match=r"text.gz is not gzip, although its name ends in .gz"):
        check_file(write(tmp_path, b"plain", "text.gz"), "pretraining.text")


def test_every_document_is_in_one_split_drawn_by_seed(tmp_path: Path) -> None:
    lines = [f"document {number}" for number in range(1000)]
    file = write(tmp_path, "\n".join(lines).encode())
    parts = {split: list(texts) for split, texts in splits(file, seed=1).items()}
    assert sorted(parts["train"] + parts["dev"]) == sorted(lines)
    assert len(parts["dev"]) == 20
    assert list(splits(file, seed=1)["dev"]) == parts["dev"] != list(splits(file, seed=2)["dev"])
    assert len(list(splits(write(tmp_path, b"one\ntwo"), seed=1)["dev"])) == 1


def test_blocks_hold_the_documents_token_by_token(tmp_path: Path) -> None:
    texts = [*text(300), "plays player word1", "§ 水"]  # the last one has no word that the tokenizer knows
    writer = BlockWriter(tiny_encoder(tmp_path / "encoder"), max_length=32)
    counts = writer.write(iter(texts), tmp_path / "train")
    table = TokenTable.open(tmp_path / "train")
    assert counts == {"documents": 302, "blocks": len(table), "tokens": int(table.lengths.sum()) - 2 * len(table)}
    assert table.lengths.max() == 32
    assert table.rows.tolist() == list(range(len(table)))
    assert all((table.ids(row)[0], table.ids(row)[-1]) == (CLS, SEP) for row in range(len(table)))
    words = [PIECES[number] for row in range(len(table)) for number in table.ids(row)[1:-1]]
    assert " ".join(words).replace(" ##", "") == " ".join(texts[:-1])
    sentences = [sentence for (sentence,) in table.sentences(np.arange(len(table)))]
    assert " ".join(sentences) == " ".join(texts[:-1])
    starts = np.cumsum([0, *(-(-len(line.split()) // 30) for line in texts[:300])])
    assert all(sentences[start].split()[0] == line.split()[0] for start, line in zip(starts, texts, strict=False))


@pytest.mark.parametrize(("document", "expected"), [
    ('He said "It was long." Then he left! Why?', ['He said "It was long."', "Then he left!", "Why?"]),
    ("Oh. It is by Mr. Smith, who is old. Fine.", ["Oh. It is by Mr.", "Smith, who is old.", "Fine."]),
    ("It costs 3.50 in the U.S. of today, I think. Yes", ["It costs 3.50 in the U.S. of today, I think.", "Yes"]),
    ("all of it is small. so is this one.", ["all of it is small.", "so is this one."]),
    ("\u8fd9\u90e8\u7535\u5f71\u5f88\u597d\u770b\u6211\u559c\u6b22\u5b83\u3002\u7ed3\u5c3e\u4e0d\u597d\u3002",
     ["\u8fd9\u90e8\u7535\u5f71\u5f88\u597d\u770b\u6211\u559c\u6b22\u5b83\u3002", "\u7ed3\u5c3e\u4e0d\u597d\u3002"]),
    ("  ", []),
])  # fmt: skip
def test_a_document_is_divided_into_sentences(document: str, expected: list[str]) -> None:
    assert list(sentences(document)) == expected
