"""What a head is. Light: whoever only describes a model need not load torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from include.glue import Kind


@dataclass(frozen=True)
class HeadSpec:
    """The head on top of an encoder; kept as head.json.

    Attributes:
        kind: classification (logits of classes) or regression (the one logit is the score).
        outputs: width of the head: classes, or 1.
        pooling: what stands for the sentence: the mean of its tokens, or the first token.
        dropout: probability of dropping a feature before the head.
        max_length: longest input in tokens that it was trained on.
        label_names: classes in words, by id.
        score_range: lowest and highest score of a regression; the head learns the score as a share of it.
    """

    kind: Kind
    outputs: int
    pooling: Literal["mean", "cls"] = "mean"
    dropout: float = 0.1
    max_length: int = 128
    label_names: tuple[str, ...] = ()
    score_range: tuple[float, float] | None = None
