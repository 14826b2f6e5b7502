"""Unlabelled text, a document a line: read, checked and split."""

from __future__ import annotations

import codecs
import gzip
import itertools
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from include import paths
from include.stages import BadInput
from tasks.sources.encoding import check_text

LONGEST_LINE = 2**20  # bytes; what is longer is hardly one document
DEV_SHARE = 0.02  # of the documents
_HEAD = 4096  # bytes that are enough to tell what is no UTF-8
_GZIP = b"\x1f\x8b"
_TAG = re.compile(r"</?[A-Za-z!][^>]*>")  # the cleaning rule html of preprocess: as in "3 < 5", not every < is a tag


def documents(file: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or gzip, without HTML tags; blank ones are left out.

    Raises BadInput, naming the line, for one that is too long or no text, and for damaged gzip.
    """
    number = 0
    try:
        with _open(file) as stream:
            for number in itertools.count(1):
                line = stream.readline(LONGEST_LINE + 1)
                if not line:
                    return
                if text := _TAG.sub(" ", _decode(line, f"{file} line {number}")).strip():
                    yield text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{file} line {number}: the gzip data is damaged ({error}): pack the file again") from error


def splits(file: Path, seed: int) -> dict[str, Iterator[str]]:
    """The documents to learn from (train), and those to measure the loss on (dev), drawn by seed.

    Reads the whole file before it returns. Raises BadInput as documents does, and when there are fewer than two.
    """
    count = sum(1 for _ in documents(file))
    if count < 2:
        raise BadInput(f"{file} holds {count} documents, one a line: give it two or more, to learn from and to measure")
    dev = set(np.random.default_rng(seed).choice(count, max(1, round(DEV_SHARE * count)), replace=False))
    return {
        "train": (text for number, text in enumerate(documents(file)) if number not in dev),
        "dev": (text for number, text in enumerate(documents(file)) if number in dev),
    }


def check_file(file: Path) -> None:
    """Raise BadInput when there is no such file, it is text in another encoding, or a .gz file is none."""
    paths.check_file(file, "put the text there, or correct pretraining.text")
    if file.suffix == ".gz" and not _is_gzip(file):
        raise BadInput(f"{file} is not gzip, though its name says so: pack it, or rename it and pretraining.text")
    if not _is_gzip(file):
        with file.open("rb") as stream:
            check_text(file, stream.read(_HEAD))


def _is_gzip(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_GZIP)) == _GZIP


def _open(file: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file)) if _is_gzip(file) else file.open("rb")


def _decode(line: bytes, place: str) -> str:
    if len(line) > LONGEST_LINE:
        raise BadInput(f"{place} is longer than {LONGEST_LINE:,} bytes: write a document a line")
    if b"\0" in line:
        raise BadInput(f"{place} holds a NUL byte: it is not UTF-8 text, a document a line")
    try:
        return line.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{place}: byte {line[error.start]:#04x} is not UTF-8: convert the file to UTF-8") from error
