"""Decide when two texts count as equal.

- Is it the same text? Then two labels contradict each other, and a second row is a duplicate. `text_key` compares the
  words and the marks of punctuation, which every tokenizer tells apart: "rated 1.5" is not "rated 15", "good :)" is not
  "good :(", and "C++" is not "C". Of white space, only that between two words counts.
- Was a test written from the same sentence? Then train and test are not independent, however a corpus writes it.
  `overlap_key` also ignores what tokenized corpora write differently from their sources: all white space ("do n't"),
  quotation marks, hyphens and dashes, and full stops and commas, unless a digit follows them.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

_WORDS_AND_MARKS = re.compile(r"\w+|[^\w\s]")
_SPACES_AND_QUOTES = re.compile("[\\s'\"`\u2018-\u201f\u2010-\u2015]+")  # and dashes
_PROSE_MARKS = re.compile(r"[-.,]+(?!\d)")  # one before a digit is a sign, a decimal point, or a separator of thousands
# The same for ASCII, which is most of many corpora, in a third of the time.
_NUMBERS = re.compile(rb"[-.,]\d")
_ASCII_PROSE_MARKS = re.compile(rb"[-.,]+(?!\d)")
_ASCII_SPACES = b" \t\n\v\f\r\x1c\x1d\x1e\x1f"
_ASCII_SPACES_AND_QUOTES = _ASCII_SPACES + b"'\"`"
_NO_MARKS = bytes(byte for byte in range(128) if chr(byte).isalnum()) + b"_ "
_APART = {byte: b" " if byte in _ASCII_SPACES else bytes([32, byte, 32]) for byte in range(128)}


def text_key(sentences: tuple[str, ...]) -> int:
    """Return a signed 64-bit hash that is the same for all texts that no tokenizer tells apart, except by case."""
    return _key([_words(text.lower().encode()) if text.isascii() else _words_of_any(text) for text in sentences])


def overlap_key(sentences: tuple[str, ...]) -> int:
    """Return a signed 64-bit hash that is the same for a text and for its tokenized form."""
    return _key([_letters(text.lower().encode()) if text.isascii() else _letters_of_any(text) for text in sentences])


def _words(text: bytes) -> bytes:
    for mark in set(text.translate(None, _NO_MARKS)):
        text = text.replace(bytes([mark]), _APART[mark])
    return b" ".join(text.split())


def _words_of_any(text: str) -> bytes:
    return " ".join(_WORDS_AND_MARKS.findall(_folded(text))).encode()


def _letters(text: bytes) -> bytes:
    kept = _ASCII_PROSE_MARKS.sub(b"", text) if _NUMBERS.search(text) else text.translate(None, b"-.,")
    return kept.translate(None, _ASCII_SPACES_AND_QUOTES) or text.strip(_ASCII_SPACES)


def _letters_of_any(text: str) -> bytes:
    folded = _folded(text)
    return (_SPACES_AND_QUOTES.sub("", _PROSE_MARKS.sub("", folded)) or folded.strip()).encode()


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _key(forms: list[bytes]) -> int:
    return int.from_bytes(hashlib.blake2b(b"\0".join(forms), digest_size=8).digest(), "little", signed=True)
