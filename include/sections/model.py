"""The model that is fine-tuned."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from include.sections.base import Section


class Model(Section):
    """The pretrained encoder and the head on top of it."""

    name: str = Field(
        "all-MiniLM-L6-v2",
        min_length=1,
        description="The pretrained encoder: the name of a bundled encoder, a local folder (a path that starts with / "
        "or ./) or a name on the Hugging Face hub.",
        examples=["all-MiniLM-L6-v2", "all-mpnet-base-v2"],
    )
    pooling: Literal["mean", "cls"] = Field(
        "mean",
        description="How token embeddings become one sentence embedding. mean: their average; cls: the embedding of "
        "the first token.",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout probability before the head.")
