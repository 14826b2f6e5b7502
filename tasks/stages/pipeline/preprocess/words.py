"""The augmentation methods. Their results depend only on the text and the state of the random generator."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from random import Random

MASK_SHARE = 0.15  # as in the paper
REACH = 3  # positions that a word may move, as in the paper
SYNONYM_SHARE = 0.1  # as in EDA (Wei and Zou 2019), because the paper states none
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")


def replace_words(text: str, synonyms: Mapping[str, Sequence[str]], random: Random) -> str:
    """Replace SYNONYM_SHARE of the words, and at least one word if any has a synonym, by random synonyms.

    The case of the first letter is preserved.

    Args:
        text: The text.
        synonyms: Lower-case word to its synonyms.
        random: The random generator.
    """
    words = _WORD.findall(text)
    known = [number for number, word in enumerate(words) if word.lower() in synonyms]
    wanted = min(max(1, round(SYNONYM_SHARE * len(words))), len(known))
    chosen = sorted(random.sample(known, wanted))
    return _exchange(text, {at: _like(words[at], random.choice(synonyms[words[at].lower()])) for at in chosen})


def mask_words(text: str, mask: str, random: Random) -> str:
    """Replace MASK_SHARE of the words by `mask`. The number is randomly rounded up or down, so that its mean is exact.

    At least one word stays, because a text of masks only has no meaningful label.
    """
    words = len(_WORD.findall(text))
    wanted = max(0, min(int(MASK_SHARE * words + random.random()), words - 1))
    return _exchange(text, dict.fromkeys(random.sample(range(words), wanted), mask))


def shuffle_words(text: str, random: Random) -> str:
    """Move words, with adjacent punctuation, by at most REACH positions; white space becomes single spaces.

    Words are sorted by i + U(0, REACH + 1), where i is the position (Lample et al. 2018, "Unsupervised machine
    translation using monolingual corpora only"), so that only the next REACH words can overtake a word.
    """
    words = text.split()
    keys = [place + random.uniform(0, REACH + 1) for place in range(len(words))]
    return " ".join(words[place] for place in sorted(range(len(words)), key=keys.__getitem__))


def _exchange(text: str, exchanged: Mapping[int, str]) -> str:
    """Replace the words at these positions. The text between words stays unchanged."""
    numbers = count()
    return _WORD.sub(lambda word: exchanged.get(next(numbers), word[0]), text)


def _like(word: str, synonym: str) -> str:
    return synonym[0].upper() + synonym[1:] if word[0].isupper() else synonym
