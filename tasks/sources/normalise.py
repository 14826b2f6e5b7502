"""When two texts count as the same: case, punctuation and white space do not matter."""

from __future__ import annotations

import hashlib
import re
import unicodedata

# White space, ASCII punctuation, and the punctuation blocks of Latin-1, General Punctuation and CJK. Letters of any
# script stay, with their combining marks, and so do emoji, which carry the sentiment of a sentence.
_IGNORED = re.compile(r"[\s!-/:-@\[-`{-~\u00a0-\u00bf\u2000-\u206f\u3000-\u303f]+")


def normalise(text: str) -> str:
    """The text without case, punctuation and white space; as it is when nothing else is in it.

    White space goes too, so that a tokenised corpus ("do n't") meets its source ("don't").
    """
    return _IGNORED.sub("", unicodedata.normalize("NFKC", text).casefold()) or text.strip()


def text_key(sentences: tuple[str, ...]) -> int:
    """A signed 64-bit hash, equal for equal texts after normalising."""
    joined = "\0".join(normalise(sentence) for sentence in sentences)
    digest = hashlib.blake2b(joined.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
