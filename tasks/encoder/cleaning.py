"""The papers' cleaning rules for texts. The file is copied into packages, so it imports nothing of the project."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable

TAG = re.compile(r"</?[A-Za-z!][^<>]*>")
_SIGN = re.compile(r"[^\w\s]")
_SPACE = re.compile(r"\s+")
_JOINERS = "\u200c\u200d"  # Persian and the scripts of India write words with them
_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
#: The English words of Spark's StopWordsRemover (Apache License 2.0), as in the course report. "not" and "isn't" are
#: among them, so a text may lose its negation.
STOP_WORDS = frozenset(
    """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
    it its itself they them their theirs themselves what which who whom this that these those am is are was were be
    been being have has had having do does did doing a an the and but if or because as until while of at by for with
    about against between into through during before after above below to from up down in out on off over under
    again further then once here there when where why how all any both each few more most other some such no nor not
    only own same so than too very s t can will just don should now i'll you'll he'll she'll we'll they'll i'd you'd
    he'd she'd we'd they'd i'm you're he's she's it's we're they're i've we've you've they've isn't aren't wasn't
    weren't haven't hasn't hadn't don't doesn't didn't won't wouldn't shan't shouldn't mustn't can't couldn't cannot
    could here's how's let's ought that's there's what's when's where's who's why's would
    """.split()  # noqa: SIM905 - a list would have a line for each word
)


def _sign(found: re.Match[str]) -> str:
    """Return a sign that belongs to a word, such as a combining accent, and "" for any other."""
    sign = found[0]
    return sign if sign in _JOINERS or unicodedata.category(sign).startswith("M") else ""


def _kept(found: re.Match[str]) -> str:
    """Return a word, or "" for a stop word."""
    return "" if found[0].lower().replace("\u2019", "'") in STOP_WORDS else found[0]


#: The rules in the order in which they apply, by their names in `preprocessing.clean`.
RULES: dict[str, Callable[[str], str]] = {
    # A tag becomes a space, because "end.<br />Start" contains two words. Any other "<", as in "3 < 5", is text.
    "html": lambda text: TAG.sub(" ", text),
    # Before the signs go, which tell "we'll" from "well", and "over-the-top" from its parts.
    "stop-words": lambda text: _WORD.sub(_kept, text),
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
