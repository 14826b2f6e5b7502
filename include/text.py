"""What of a text can be seen, and what cannot be written to a file."""

from __future__ import annotations

import re

# White space, control characters, Unicode's Default_Ignorable_Code_Point (zero-width spaces and joiners, direction
# marks, fillers, variation selectors, tags; DerivedCoreProperties.txt of Unicode 16) and the blank Braille pattern.
_UNSEEN = (
    r"\s\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
_SEEN = re.compile(f"[^{_UNSEEN}]")
_HIDDEN = re.compile(f"[{_UNSEEN}]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNWRITABLE = re.compile(r"[\x00\ud800-\udfff]")


def is_blank(text: str) -> bool:
    """Whether nothing of the text can be seen: it is empty, or all white space, zero-width and control characters."""
    return _SEEN.search(text) is None


def seen(text: str) -> str:
    """What can be seen of the text."""
    return _HIDDEN.sub("", text)


def has_control(text: str) -> bool:
    """Whether the text holds a tab, a line end or another control character, so that it is no field of a TSV file."""
    return _CONTROL.search(text) is not None


def is_unwritable(text: str) -> bool:
    """Whether no UTF-8 file, or no path, can hold the text: it has half a surrogate pair or a NUL."""
    return _UNWRITABLE.search(text) is not None
