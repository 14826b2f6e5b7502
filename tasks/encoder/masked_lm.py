"""The masked language model for domain pre-training: an encoder with a head that predicts masked tokens."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from tasks.encoder.batching import Packing
from tasks.encoder.models import EncoderWithHead


class WordHead(nn.Module):
    """BERT's head for masked language modeling (Devlin et al. 2019).

    A dense layer, GELU and layer normalization are followed by a decoder whose weight is that of the word embeddings.
    """

    def __init__(self, hidden: int, words: nn.Embedding, epsilon: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, words.embedding_dim)
        self.norm = nn.LayerNorm(words.embedding_dim, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(words.num_embeddings))
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, tokens: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return logits [tokens, vocabulary] of outputs [tokens, hidden] and embeddings [vocabulary, size]."""
        return functional.linear(self.norm(functional.gelu(self.dense(tokens))), words, self.bias)


class MaskedLanguageModel(EncoderWithHead):
    """An encoder with a head for masked language modeling. `save` writes only the encoder."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__(encoder)
        pooler = getattr(encoder, "pooler", None)
        if pooler is not None:  # It is not trained here, but the native head of a fine-tuning may use it.
            pooler.requires_grad_(False)
        epsilon = getattr(encoder.config, "layer_norm_eps", 1e-12)
        self.head = WordHead(encoder.config.hidden_size, self.words, epsilon)

    @property
    def words(self) -> nn.Embedding:
        """The word embeddings, whose weight is also that of the decoder."""
        return cast(nn.Embedding, self.encoder.get_input_embeddings())

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        places: torch.Tensor,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Return logits, float32 [places, vocabulary], of the tokens at some places of the flattened batch.

        The other arguments are those of `run`.
        """
        tokens = self.run(input_ids, attention_mask, token_type_ids, packing)
        return cast(torch.Tensor, self.head(tokens.flatten(0, 1)[places], self.words.weight).float())
