"""Explanations of the worst mistakes, for the report and for viewers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tasks.encoder.models import Classifier
from tasks.inference.explanation import explanations
from tasks.inference.labeler import values
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TorchBackend
from tasks.scoring.predictions import Array
from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.evaluate.rows import Explained, worst_places

#: The maximum number of parts of a text: the mistakes then cost no more than some 1,300 other rows.
PARTS = 64
#: If no word of a row contributes more, even the largest contribution is faint.
_LEAST = 0.1


class Piece(NamedTuple):
    """A piece of a text: a word that is explained, or what is between two of them."""

    text: str
    share: float | None = None  # of the row's largest contribution; negative if it speaks against the prediction
    title: str = ""  # the contributions


def explain_worst(dev: ScoredSplit, model: Classifier, folder: Path) -> Explained:
    """Explain the worst mistakes of a model, which lies in a folder. Their texts are those that it reads, cleaned."""
    head = replace(model.spec, cleaning=())  # the texts of the split are clean
    runner = Runner(folder, TorchBackend(model, torch.get_num_threads()), head=head)

    def answer(texts: Iterable[Sequence[str]]) -> Iterator[Array]:
        return (values(head, logits) for logits in runner.logits(texts))

    places = worst_places(dev)
    texts = [dev.sentences[at] for at in places]
    if not texts:
        return {}
    wholes = np.concatenate(list(answer(texts)))
    found = explanations(head, dev.task.label_names, texts, wholes, answer, PARTS)
    return dict(zip(dev.rows[places].tolist(), found, strict=True))


def tinted(texts: Sequence[str], words: Sequence[Mapping[str, Any]]) -> list[list[Piece]]:
    """Divide each text of a row into its explained words and what is between them."""
    values = [_numbers(word) for word in words]
    largest = max([_LEAST, *(abs(_strongest(one)) for one in values)])
    pieces: list[list[Piece]] = []
    for number, text in enumerate(texts, 1):
        found, at = [], 0
        for word, each in zip(words, values, strict=True):
            if word.get("text", 1) == number:
                start = text.index(word["word"], at)
                title = ", ".join(f"{label} {value:+.3f}".strip() for label, value in each.items())
                found += [Piece(text[at:start]), Piece(word["word"], _strongest(each) / largest, title)]
                at = start + len(word["word"])
        pieces.append([*found, Piece(text[at:])])
    return pieces


def _numbers(word: Mapping[str, Any]) -> dict[str, float]:
    given = word["contribution"]
    return given if isinstance(given, dict) else {"": given}


def _strongest(numbers: Mapping[str, float]) -> float:
    return max(numbers.values(), key=abs, default=0.0)
