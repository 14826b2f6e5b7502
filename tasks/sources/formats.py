"""What a file is: its format by its name, and whether its first bytes are UTF-8 text."""

from __future__ import annotations

import codecs
from pathlib import Path

from include import folders
from include.stages import BadInput

#: How the problem of a row begins that cannot be decoded.
BROKEN = "broken encoding"
#: The remedy for the encoding that most files have that are not UTF-8.
WINDOWS = "if the file is in the encoding of older Windows programs, set data.encoding to cp1252"
_HEAD = 4096  # bytes that are enough to detect another encoding than UTF-8
_CSV = "save the sheet as CSV in UTF-8"  # the remedy for spreadsheets
_NO_TEXT = {
    b"\x1f\x8b\x08": ("gzip", "unpack it (gunzip)"),
    b"BZh91AY&SY": ("bzip2", "unpack it (bunzip2)"),
    b"\xfd7zXZ\0": ("xz", "unpack it (unxz)"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unpack it (unzstd)"),
    b"PK\x03\x04": ("a zip archive or a spreadsheet", f"unpack it, or {_CSV}"),
    b"\xd0\xcf\x11\xe0": ("a spreadsheet", _CSV),
    b"PAR1\x15": ("Parquet", "rename it so that the name ends in .parquet"),
}
_MARKS = {  # UTF-32 comes first, because its byte order mark starts with that of UTF-16
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def format_of(file: Path) -> str:
    """Return the end of a file's name, such as ".csv", in lower case. JSON Lines are ".jsonl", also as ".ndjson"."""
    suffix = file.suffix.lower()
    return ".jsonl" if suffix == ".ndjson" else suffix


def undecodable(byte: int, encoding: str = "utf-8") -> str:
    """Return why a row cannot be used that has a byte which the encoding lacks."""
    return f"{BROKEN}: byte {byte:#04x} is not {'UTF-8' if encoding == 'utf-8' else encoding}"


def decoding_problem(value: bytes) -> str:
    """Return why a text cannot be decoded, or "" if it can."""
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return undecodable(value[error.start])
    return ""


def nul_problem(text: str) -> str:
    """Return why a row with this text cannot be read, or "" if it contains no NUL byte."""
    return f"{BROKEN}: contains a NUL byte" if "\0" in text else ""


def check_file(path: Path, encoding: str = "utf-8") -> None:
    """Raise BadInput if the file is missing, empty, compressed or, if it should be UTF-8, in another encoding."""
    folders.check_file(path, "put the file there, or correct data.path and the file name")
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if not head:
        raise BadInput(f"{path} is empty: add data to it, or name another file")
    if format_of(path) != ".parquet":
        check_text(path, head, encoding)


def check_text(path: Path, head: bytes, encoding: str = "utf-8") -> None:
    """Raise BadInput if the first bytes of a file are not text, or not in UTF-8 as they should be."""
    for start, (kind, remedy) in _NO_TEXT.items():
        if head.startswith(start):
            raise BadInput(f"{path} is {kind}, not text: {remedy}")
    if not any(head):
        raise BadInput(f"{path} contains NUL bytes instead of text, so it was not written completely: write it again")
    if encoding != "utf-8":
        return
    wide = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "") or _without_mark(head)
    if wide:
        raise BadInput(f"{path} is {wide}, not UTF-8 text: convert it (iconv -f {wide} -t UTF-8), or set data.encoding")


def _without_mark(head: bytes) -> str:
    """Return the name of the wide encoding in which the bytes look like text, or "".

    In UTF-32, the highest of the four bytes is always 0 and the next one is at most 0x10. In UTF-16, the higher of the
    two bytes is 0 for Latin script.
    """
    whole = head[: len(head) // 4 * 4]
    if whole and not any(whole[3::4]) and max(whole[2::4]) <= 0x10:
        return "UTF-32LE"
    if whole and not any(whole[0::4]) and max(whole[1::4]) <= 0x10:
        return "UTF-32BE"
    if head.count(0) <= len(head) / 4:
        return ""
    return "UTF-16LE" if head[1::2].count(0) > head[0::2].count(0) else "UTF-16BE"
