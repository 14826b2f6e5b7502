"""The model that is fine-tuned."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from include.sections.base import Section


class Model(Section):
    """The pretrained encoder and the head on top of it, or a baseline."""

    kind: Literal["encoder", "frozen", "tfidf", "textcnn"] = Field(
        "encoder",
        description="What is trained. encoder: the encoder with its head is fine-tuned; the others are baselines to "
        "compare it with. frozen: a logistic or linear regression on the encoder's pooled output; tfidf: the same on "
        "TF-IDF of single tokens and pairs of neighboring ones; textcnn: convolutions over word vectors of the "
        "training rows, for which a training.learning_rate of 0.001 is a good start. tfidf and textcnn use only the "
        "encoder's tokenizer.",
    )
    name: str = Field(
        "all-MiniLM-L6-v2",
        min_length=1,
        description="The pretrained encoder: the name of a bundled encoder, a local folder (a path that starts with / "
        "or ./) or a name on the Hugging Face hub.",
        examples=["all-MiniLM-L6-v2", "all-mpnet-base-v2"],
    )
    pooling: Literal["native", "mean", "cls"] = Field(
        "native",
        description="The head on top of the encoder. native: the head that transformers defines for the encoder's "
        "family, so that every tool can load the model; mean: a linear layer on the average of the token embeddings; "
        "cls: a linear layer on the embedding of the first token.",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout probability before the head.")
