"""Decide when two texts count as equal: case, punctuation and white space are ignored."""

from __future__ import annotations

import hashlib
import re
import unicodedata

# White space, ASCII punctuation, and the punctuation blocks of Latin-1, General Punctuation and CJK. Letters of any
# script and their combining marks are kept, and so are emoji, because they carry the sentiment of a sentence.
_IGNORED = re.compile(r"[\s!-/:-@\[-`{-~\u00a0-\u00bf\u2000-\u206f\u3000-\u303f]+")


def normalize(text: str) -> str:
    """Return the text in lower case, without punctuation and white space; unchanged if nothing else would be left.

    White space is removed too, so that a tokenized corpus ("do n't") matches its source ("don't").
    """
    return _IGNORED.sub("", unicodedata.normalize("NFKC", text).casefold()) or text.strip()


def text_key(sentences: tuple[str, ...]) -> int:
    """Return a signed 64-bit hash that is the same for all texts that are equal after normalization."""
    joined = "\0".join(normalize(sentence) for sentence in sentences)
    digest = hashlib.blake2b(joined.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
