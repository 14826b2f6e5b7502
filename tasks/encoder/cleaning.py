"""The papers' cleaning rules for texts. The file is copied into packages, so it imports nothing of the project."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable

_TAG = re.compile(r"</?[A-Za-z!][^<>]*>")
_SIGN = re.compile(r"[^\w\s]")
_SPACE = re.compile(r"\s+")
_JOINERS = "\u200c\u200d"  # Persian and the scripts of India write words with them


def _sign(found: re.Match[str]) -> str:
    """Return a sign that belongs to a word, such as a combining accent, and "" for any other."""
    sign = found[0]
    return sign if sign in _JOINERS or unicodedata.category(sign).startswith("M") else ""


#: The rules in the order in which they apply, by their names in `preprocessing.clean`.
RULES: dict[str, Callable[[str], str]] = {
    # A tag becomes a space, because "end.<br />Start" contains two words. Any other "<", as in "3 < 5", is text.
    "html": lambda text: _TAG.sub(" ", text),
    "punctuation": lambda text: _SIGN.sub(_sign, text),
    "lowercase": str.lower,
    "whitespace": lambda text: _SPACE.sub(" ", text),
}


def clean(text: str, rules: Collection[str]) -> str:
    """Apply rules to a text in the order of RULES; raise ValueError if there is no such rule."""
    check_rules(rules)
    for name, rule in RULES.items():
        if name in rules:
            text = rule(text)
    return text


def check_rules(rules: Collection[str]) -> None:
    """Raise ValueError if one of these is not the name of a rule."""
    unknown = sorted(set(rules) - set(RULES))
    if unknown:
        raise ValueError(f"there is no cleaning rule {unknown[0]!r}: the rules are {', '.join(RULES)}")


def clean_all(texts: Iterable[str], rules: Collection[str]) -> list[str]:
    """Apply rules to each text."""
    return [clean(text, rules) for text in texts] if rules else list(texts)
