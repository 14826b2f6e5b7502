"""What augmentation does to a text. What comes out depends on the text and the state of `random` only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from random import Random

MASK_SHARE = 0.15  # the paper's
REACH = 3  # places that a word may move, the paper's
SYNONYM_SHARE = 0.1  # the paper names none; this one is Wei and Zou's (2019, EDA)
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")


def replace_words(text: str, synonyms: Mapping[str, Sequence[str]], random: Random) -> str:
    """Put one of their synonyms for SYNONYM_SHARE of the words, for one at least if any of them has one.

    The first letter stays large or small. `synonyms` are by words in lower case.
    """
    words = _WORD.findall(text)
    known = [number for number, word in enumerate(words) if word.lower() in synonyms]
    wanted = min(max(1, round(SYNONYM_SHARE * len(words))), len(known))
    chosen = sorted(random.sample(known, wanted))
    return _exchange(text, {at: _like(words[at], random.choice(synonyms[words[at].lower()])) for at in chosen})


def mask_words(text: str, mask: str, random: Random) -> str:
    """Put `mask` for MASK_SHARE of the words, rounded up or down at random so that the mean is right.

    One word at least stays, since a text of nothing but masks has no label.
    """
    words = len(_WORD.findall(text))
    wanted = max(0, min(int(MASK_SHARE * words + random.random()), words - 1))
    return _exchange(text, dict.fromkeys(random.sample(range(words), wanted), mask))


def shuffle_words(text: str, random: Random) -> str:
    """Move words, with the punctuation that clings to them, by REACH places at most; white space becomes one blank.

    Lample et al. (2018, "Unsupervised machine translation using monolingual corpora only"): words are sorted by
    i + U(0, REACH + 1), so that one can be overtaken by none but the REACH next ones.
    """
    words = text.split()
    keys = [place + random.uniform(0, REACH + 1) for place in range(len(words))]
    return " ".join(words[place] for place in sorted(range(len(words)), key=keys.__getitem__))


def _exchange(text: str, exchanged: Mapping[int, str]) -> str:
    """The text with other words at these numbers; all that is between words stays."""
    numbers = count()
    return _WORD.sub(lambda word: exchanged.get(next(numbers), word[0]), text)


def _like(word: str, synonym: str) -> str:
    return synonym[0].upper() + synonym[1:] if word[0].isupper() else synonym
