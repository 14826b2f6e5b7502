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
from collections.abc import Callable

_WORDS_AND_MARKS = re.compile(r"\w+|[^\w\s]")
_SPACES_AND_QUOTES = re.compile("[\\s'\"`\u2018-\u201f\u2010-\u2015]+")  # and dashes
_PROSE_MARKS = re.compile(r"[-.,]+(?!\d)")  # one before a digit is a sign, a decimal point, or a separator of thousands


def text_key(sentences: tuple[str, ...]) -> int:
    """Return a signed 64-bit hash that is the same for all texts that no tokenizer tells apart, except by case."""
    return _key(sentences, lambda text: " ".join(_WORDS_AND_MARKS.findall(text)))


def overlap_key(sentences: tuple[str, ...]) -> int:
    """Return a signed 64-bit hash that is the same for a text and for its tokenized form."""
    return _key(sentences, lambda text: _SPACES_AND_QUOTES.sub("", _PROSE_MARKS.sub("", text)) or text.strip())


def _key(sentences: tuple[str, ...], form: Callable[[str], str]) -> int:
    joined = "\0".join(form(unicodedata.normalize("NFC", sentence).casefold()) for sentence in sentences)
    digest = hashlib.blake2b(joined.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
