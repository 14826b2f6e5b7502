"""Checks of texts for invisible characters and for characters that cannot be stored in a file."""

from __future__ import annotations

import re

# White space, control characters, the characters with Unicode's property Default_Ignorable_Code_Point (zero-width
# spaces and joiners, direction marks, fillers, variation selectors and tags; see DerivedCoreProperties.txt of
# Unicode 16) and the blank Braille pattern.
_INVISIBLE = (
    r"\s\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
_VISIBLE = re.compile(f"[^{_INVISIBLE}]")
_INVISIBLE_RUN = re.compile(f"[{_INVISIBLE}]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNWRITABLE = re.compile(r"[\x00\ud800-\udfff]")


def is_blank(text: str) -> bool:
    """Return whether the text has no visible character: it is empty, or has only white space and the like."""
    return _VISIBLE.search(text) is None


def seen(text: str) -> str:
    """Return the text without its invisible characters."""
    return _INVISIBLE_RUN.sub("", text)


def has_control(text: str) -> bool:
    """Return whether the text contains a tab, a line break or another control character, unfit for a TSV file."""
    return _CONTROL.search(text) is not None


def is_unwritable(text: str) -> bool:
    """Return whether the text contains half of a surrogate pair, which UTF-8 cannot encode, or a NUL character."""
    return _UNWRITABLE.search(text) is not None
