"""Read, check, split and divide unlabeled text with one document per line."""

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

from include import folders
from include.stages import BadInput
from tasks import digests
from tasks.sources.text_files import HEAD, check_text

LONGEST_LINE = 2**20  # bytes; a longer line is hardly a single document
DEV_SHARE = 0.02  # of the documents
SHORTEST = 12  # characters of a sentence, unless it is the last one of its document
#: The end of a sentence with what belongs to it, also in scripts that have no spaces.
_END = re.compile(r"""[.!?\u2026]["'\u201d\u2019)\]]*\s+|[\u3002\uff01\uff1f][\u201d\u2019\u300d\u300f\uff09]*""")
_GZIP = b"\x1f\x8b"
_TAG = re.compile(r"</?[A-Za-z!][^>]*>")  # as the rule html of preprocess; the < of "3 < 5" starts no tag


def documents(file: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or gzip, without HTML tags and blank lines."""
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
        raise BadInput(f"{file} line {number}: the gzip data is damaged ({error}): compress the file again") from error


def splits(file: Path, seed: int) -> dict[str, Iterator[str]]:
    """Split the documents at random into train and dev, which has DEV_SHARE of them but at least one."""
    count = sum(1 for _ in documents(file))
    if count < 2:
        raise BadInput(f"{file} contains {count} documents, one per line: at least two are needed, for train and dev")
    dev = set(np.random.default_rng(seed).choice(count, max(1, round(DEV_SHARE * count)), replace=False))
    return {
        "train": (text for number, text in enumerate(documents(file)) if number not in dev),
        "dev": (text for number, text in enumerate(documents(file)) if number in dev),
    }


def sentences(document: str) -> Iterator[str]:
    """Yield the sentences of a document. Very short ones, also abbreviations, are joined with the one that follows."""
    start, has_capitals = 0, document != document.lower()
    for end in (found.end() for found in _END.finditer(document)):
        goes_on = has_capitals and document[end : end + 1].islower()
        if len(document[start:end].strip()) >= SHORTEST and not goes_on:
            yield document[start:end].strip()
            start = end
    if rest := document[start:].strip():
        yield rest


def check_file(file: Path, field: str) -> None:
    """Raise BadInput if the file is missing, is not UTF-8 text, or is not gzip although its name ends in .gz.

    `field` is the one of the experiment that names the file.
    """
    folders.check_file(file, f"put the text there, or correct {field}")
    if file.suffix == ".gz" and not _is_gzip(file):
        raise BadInput(f"{file} is not gzip, although its name ends in .gz: compress it, or rename it")
    if not _is_gzip(file):
        with file.open("rb") as stream:
            check_text(file, stream.read(HEAD))


def digest_of(text: str, field: str) -> str:
    """Return the digest of the file that a field names, after check_file; "" if it names none."""
    if not text:
        return ""
    check_file(folders.user_path(text), field)
    return digests.digest(folders.user_path(text))


def _is_gzip(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_GZIP)) == _GZIP


def _open(file: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file)) if _is_gzip(file) else file.open("rb")


def _decode(line: bytes, place: str) -> str:
    if len(line) > LONGEST_LINE:
        raise BadInput(f"{place} is longer than {LONGEST_LINE:,} bytes: write one document per line")
    if b"\0" in line:
        raise BadInput(f"{place} contains a NUL byte, so it is not text: use a UTF-8 file with one document per line")
    try:
        return line.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{place}: byte {line[error.start]:#04x} is not UTF-8: convert the file to UTF-8") from error
