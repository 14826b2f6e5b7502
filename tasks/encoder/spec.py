"""The description of a head. This module does not import torch, so that it is quick to load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

from include.glue import Kind

_PROBLEM_TYPES: dict[Kind, str] = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}
#: The field of config.json that holds the thresholds of a multi-label model.
THRESHOLDS = "thresholds"
#: The fields of config.json that say what a model needs to know of its texts.
CLEANING, TEXTS, WINDOW_STRIDE = "cleaning", "texts", "window_stride"
#: The field of config.json in which the stage train records the encoder of a model.
BASE_MODEL = "base_model"


@dataclass(frozen=True)
class HeadSpec:
    """The head on top of an encoder.

    Attributes:
        kind: classification (one logit per class, for softmax), multilabel (one logit per label, for a sigmoid) or
            regression (a single output, the score).
        outputs: number of outputs: the number of labels, or 1.
        pooling: native is the head that transformers defines for the encoder's family. With mean or cls, a linear
            head follows the mean of the token embeddings, or the first token's.
        dropout: dropout probability of the head.
        max_length: maximum length of an input in training, in tokens.
        stride: number of tokens that neighboring windows of a long text share; None if long texts are truncated.
        label_names: names of the labels, in the order of their ids.
        score_range: lowest and highest score of a regression.
        thresholds: of a trained multi-label model, the lowest probability from which it predicts each label.
        cleaning: the rules by which the texts were cleaned in training (`preprocessing.clean`), and by which a text has
            to be cleaned before it is tokenized.
        texts: the number of texts in a row: 1, or 2 for pairs. None: unknown, as of models of other origin.
    """

    kind: Kind
    outputs: int
    pooling: Literal["native", "mean", "cls"] = "native"
    dropout: float = 0.1
    max_length: int = 128
    stride: int | None = None
    label_names: tuple[str, ...] = ()
    score_range: tuple[float, float] | None = None
    thresholds: tuple[float, ...] = ()
    cleaning: tuple[str, ...] = ()
    texts: int | None = None

    @property
    def meaning(self) -> tuple[Any, ...]:
        """What determines the shape of the head and the meaning of its outputs."""
        return self.kind, self.outputs, self.pooling, self.label_names, self.score_range

    def config(self) -> dict[str, Any]:
        """Return the values that describe the head in a model's config.json.

        All of them are transformers' own, except for score_range, cleaning, texts and window_stride. The thresholds
        are not known before the training.
        """
        names = self.label_names or tuple(f"LABEL_{number}" for number in range(self.outputs))
        names = ("score",) if self.kind == "regression" else names
        values = {
            "problem_type": _PROBLEM_TYPES[self.kind],
            "id2label": dict(enumerate(names)),
            "label2id": {name: number for number, name in enumerate(names)},
            "classifier_dropout": self.dropout,
            CLEANING: list(self.cleaning),
            TEXTS: self.texts,
            WINDOW_STRIDE: self.stride,
        }
        return values | ({"score_range": list(self.score_range)} if self.score_range else {})

    @classmethod
    def of(cls, config: Any, max_length: int) -> Self:
        """Return the head that a model's configuration describes.

        Args:
            config: the configuration of a model for sequence classification.
            max_length: maximum length of an input, in tokens.
        """
        kind = kind_of(config.problem_type, config.num_labels)
        names = tuple(name for _, name in sorted(config.id2label.items()))
        score_range = getattr(config, "score_range", None) if kind == "regression" else None
        return cls(
            kind=kind,
            outputs=config.num_labels,
            pooling=config.pooling if config.model_type == "pooled-encoder" else "native",
            dropout=getattr(config, "classifier_dropout", None) or 0.0,
            max_length=max_length,
            stride=getattr(config, WINDOW_STRIDE, None),
            label_names=() if kind == "regression" else names,
            score_range=score_range and tuple(score_range),
            thresholds=tuple(getattr(config, THRESHOLDS, None) or ()) if kind == "multilabel" else (),
            cleaning=tuple(getattr(config, CLEANING, None) or ()),
            texts=getattr(config, TEXTS, None),
        )


def kind_of(problem_type: str | None, outputs: int) -> Kind:
    """Return the kind of task of a head, by transformers' name for it and its number of outputs."""
    if problem_type == _PROBLEM_TYPES["multilabel"]:
        return "multilabel"
    return "regression" if outputs == 1 else "classification"
