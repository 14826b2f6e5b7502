"""A masked language model: a pretrained encoder under a head that says which word stood at a place."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from tasks.encoder.models import EncoderWithHead, load_encoder
from tasks.encoder.packing import Packing


class WordHead(nn.Module):
    """BERT's head (Devlin et al. 2019): dense layer, GELU, norm, and the word embeddings as decoder, with a bias."""

    def __init__(self, hidden: int, words: nn.Embedding, epsilon: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, words.embedding_dim)
        self.norm = nn.LayerNorm(words.embedding_dim, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(words.num_embeddings))
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, tokens: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Logits [places, vocabulary] of encoded tokens [places, hidden]; words: the embeddings' weight."""
        return functional.linear(self.norm(functional.gelu(self.dense(tokens))), words, self.bias)


class MaskedLanguageModel(EncoderWithHead):
    """An encoder under a word head. The head is of use in pre-training only: save keeps the encoder."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__(encoder)
        epsilon = getattr(encoder.config, "layer_norm_eps", 1e-12)
        self.head = WordHead(encoder.config.hidden_size, self.words, epsilon)

    @property
    def words(self) -> nn.Embedding:
        """The word embeddings, which are the decoder's weight too."""
        return cast(nn.Embedding, self.encoder.get_input_embeddings())

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        places: torch.Tensor,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Logits [number of places, vocabulary], float32, where places [batch, tokens] is true, row by row."""
        tokens = self.encode(input_ids, attention_mask, token_type_ids, packing)
        return cast(torch.Tensor, self.head(tokens[places], self.words.weight).float())


def load_masked_lm(folder: Path, max_length: int) -> MaskedLanguageModel:
    """A pretrained encoder under a new head drawn from torch's generator, in training mode.

    Raises BadInput when the folder's files are missing, damaged or do not fit each other or max_length.
    """
    return MaskedLanguageModel(load_encoder(folder, max_length)).train()
