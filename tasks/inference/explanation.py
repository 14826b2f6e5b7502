"""Explain answers: how much each word of a text contributes to them, found by leaving it out (occlusion).

It needs no gradients, so every form of a model can do it, and it costs one more answer per word. Occlusion is from
Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional Networks"; words are erased in Li et al. 2016,
"Understanding Neural Networks through Representation Erasure".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np

from include.text import is_blank
from tasks.encoder.cleaning import TAG, clean
from tasks.encoder.windows import Array

#: The maximum number of parts of a text, or of a pair, that are left out in turn. In a longer text, they have several
#: words each.
PARTS = 256
# Chinese and Japanese have no spaces between words, so each character is one, as in BERT's tokenizer.
_ALONE = "\u2e80-\u2fff\u3001-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_ALONE}]|[^\s{_ALONE}]+")


class Reader(Protocol):
    """What a model says of its answers, and of the texts that it reads: a HeadSpec or a PackagedModel."""

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def thresholds(self) -> Sequence[float]: ...  # noqa: D102
    @property
    def cleaning(self) -> Collection[str]: ...  # noqa: D102
    @property
    def max_length(self) -> int: ...  # noqa: D102
    @property
    def stride(self) -> int | None: ...  # noqa: D102


@dataclass(frozen=True)
class Part:
    """A word of a row, or several neighboring ones of a long text."""

    text: int  # 0, or 1 for the second text of a pair
    start: int  # in the text as it was given, before it is cleaned
    end: int


def parts_of(texts: Sequence[str], model: Reader, most: int = PARTS) -> list[Part]:
    """Return the parts of a row's texts that can be left out, in their order, about `most` of them or fewer.

    Words of which cleaning leaves nothing are not among them. Neither are those beyond the maximum length of a model
    that truncates texts, as far as their number tells: it does not read them.
    """
    every = [list(islice(_words(text, model.cleaning), _readable(model))) for text in texts]
    size = max(1, math.ceil(sum(map(len, every)) / most))
    return [
        Part(number, words[first][0], words[min(first + size, len(words)) - 1][1])
        for number, words in enumerate(every)
        for first in range(0, len(words), size)
    ]


def _readable(model: Reader) -> int | None:
    return model.max_length if model.stride is None else None  # a word has at least one token


def _words(text: str, rules: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each word that a model reads of a text which is cleaned by rules."""
    if "html" in rules:
        text = TAG.sub(lambda tag: " " * len(tag[0]), text)
    for word in _WORD.finditer(text):
        if not is_blank(clean(word[0], rules)):
            yield word.span()


def without(texts: Sequence[str], parts: Iterable[Part]) -> Iterator[tuple[str, ...]]:
    """Yield the texts of a row without each of its parts."""
    for part in parts:
        yield tuple(_left(text, part) if number == part.text else text for number, text in enumerate(texts))


def _left(text: str, part: Part) -> str:
    before, after = text[: part.start], text[part.end :]
    if not before or before[-1].isspace():  # some tokenizers have a token for two spaces
        after = after.lstrip()
    return before + after if after else before.rstrip()


def explain(
    model: Reader, names: Sequence[str], texts: Sequence[str], parts: Sequence[Part], whole: Array, changed: Array
) -> list[dict[str, Any]]:
    """Return the parts of a row as JSON values, each with its contribution.

    The contribution is by how much the probability of the predicted label, or the score, falls without the part. For a
    multi-label task, it is an object with a number for each predicted label.

    Args:
        model: what the model says of itself.
        names: the names of the labels.
        texts: the text, or the pair.
        parts: those of the texts.
        whole: the probabilities of all labels, or the score, [outputs].
        changed: the same without each part, [parts, outputs].
    """
    falls = (whole - changed).round(6) + 0.0  # no -0.0
    found: list[Any]
    if model.kind == "multilabel":
        limits = np.asarray(model.thresholds) if len(model.thresholds) else 0.5
        chosen = np.flatnonzero(whole >= limits).tolist()
        found = [{names[label]: row[label].item() for label in chosen} for row in falls]
    else:
        found = falls[:, whole.argmax()].tolist()
    return [
        {"word": texts[part.text][part.start : part.end]}
        | ({"text": part.text + 1} if len(texts) > 1 else {})
        | {"contribution": contribution}
        for part, contribution in zip(parts, found, strict=True)
    ]


def explanations(
    model: Reader,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    answers: Array,
    answer: Callable[[Iterable[Sequence[str]]], Iterator[Array]],
    most: int = PARTS,
) -> Iterator[list[dict[str, Any]]]:
    """Yield the explanation of each row: see `explain`. `answer` answers rows, some at a time, as in `answers`."""
    parts = [parts_of(texts, model, most) for texts in rows]
    changed = chain.from_iterable(
        answer(left for texts, some in zip(rows, parts, strict=True) for left in without(texts, some))
    )
    for texts, some, whole in zip(rows, parts, answers, strict=True):
        each = np.array(list(islice(changed, len(some)))).reshape(len(some), len(whole))
        yield explain(model, names, texts, some, whole, each)
