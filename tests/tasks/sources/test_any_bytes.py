"""Whatever bytes a text has, its pieces have the same rows as the whole file."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from include.named_experiments import build
from include.stages import BadInput
from tasks.sources import open_source

pytestmark = pytest.mark.usefixtures("in_pieces")
_ENDS = [b"\n", b"\n", b"\r\n", b"\r"]
_OBJECTS = [b'{"sentence":"a","label":"1"}', b'{"sentence":"b","label":0}', b"3", b" ", *_ENDS]


def _content(kind: str, chance: random.Random) -> bytes:
    separator = {"csv": b",", "tsv": b"\t"}.get(kind, b" ")
    signs = [b"a", b"1", b"0", b" ", b"\v", b"\0", b"\xe9", b"\xc3\xa9", separator, separator, *_ENDS]
    head = separator.join([b"sentence", b"label", *chance.choice([[], [b""], [b"", b""]])]) + chance.choice(_ENDS)
    body = chance.choices(_OBJECTS if kind == "jsonl" else signs, k=chance.randrange(50))
    tail = chance.choices([separator, *_ENDS], k=chance.choice([0, 5, 30]))
    mark = chance.choice([b"", b"", b"\xef\xbb\xbf"])
    return mark + b"".join([b"" if kind == "jsonl" else head, *body, *tail])


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_random_lines(tmp_path: Path, kind: str) -> None:
    file, chance = tmp_path / f"all.{kind}", random.Random(0)
    contents = [_content(kind, chance) for _ in range(60)]
    if kind == "tsv":
        contents.append(b"sentence\tlabel\na\t1\n\t\r\r\t")  # the last line has no end, and more than separators
    if kind == "jsonl":
        contents.append(b'\xef\xbb\xbf\n{"sentence":"a","label":"1"}\n\n{"sentence":"b","label":"0"}\n')
    read = 0
    for content in contents:
        file.write_bytes(content or b"\n")
        source = open_source(build({"data": {"task": "SST-2", "source": "files", "path": str(file)}}, "mine"))
        with suppress(BadInput):  # which is the same for pieces
            read += len(list(source.records("train")))
    assert read > 100
