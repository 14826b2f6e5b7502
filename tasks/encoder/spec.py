"""The description of a head. This module does not import torch, so that it is quick to load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from include.glue import Kind


@dataclass(frozen=True)
class HeadSpec:
    """The head on top of an encoder, as stored in head.json.

    Attributes:
        kind: classification (one logit per class) or regression (a single output, the score).
        outputs: number of outputs: the number of classes, or 1.
        pooling: how token embeddings become one sentence embedding: their mean, or the first token's (cls).
        dropout: dropout probability before the head.
        max_length: maximum length of an input in training, in tokens.
        label_names: names of the classes, in the order of their ids.
        score_range: lowest and highest score of a regression. The head predicts the position within this range.
    """

    kind: Kind
    outputs: int
    pooling: Literal["mean", "cls"] = "mean"
    dropout: float = 0.1
    max_length: int = 128
    label_names: tuple[str, ...] = ()
    score_range: tuple[float, float] | None = None
