"""The masked language model for domain pre-training: an encoder with a head that predicts masked tokens."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from tasks.encoder.loading import load_encoder
from tasks.encoder.models import EncoderWithHead
from tasks.encoder.packing import Packing


class WordHead(nn.Module):
    """BERT's head for masked language modeling (Devlin et al. 2019).

    A dense layer, GELU and layer normalization are followed by a decoder whose weight is that of the word embeddings.

    Args:
        hidden: size of the encoder's output.
        words: the word embeddings.
        epsilon: epsilon of the layer normalization.
    """

    def __init__(self, hidden: int, words: nn.Embedding, epsilon: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, words.embedding_dim)
        self.norm = nn.LayerNorm(words.embedding_dim, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(words.num_embeddings))
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, tokens: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return logits [tokens, vocabulary].

        Args:
            tokens: output of the encoder for the tokens to predict, [tokens, hidden].
            words: weight of the word embeddings, [vocabulary, embedding size].
        """
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
        """Predict the tokens at some places.

        Args:
            input_ids: token ids with masks, [batch, tokens].
            attention_mask: 1 for tokens and 0 for padding, [batch, tokens].
            token_type_ids: segment of each token, [batch, tokens]; None if all are in the first segment.
            places: indices of the tokens to predict in the flattened batch, int64 [selected tokens].
            packing: the packing of the batch, if it is packed.

        Returns:
            Logits of the selected tokens, float32 [selected tokens, vocabulary].
        """
        tokens = self.run(input_ids, attention_mask, token_type_ids, packing)
        return cast(torch.Tensor, self.head(tokens.flatten(0, 1)[places], self.words.weight).float())


def load_masked_lm(folder: Path, max_length: int) -> MaskedLanguageModel:
    """Load a pretrained encoder and add a new head, whose weights are drawn from torch's generator.

    Args:
        folder: the folder of the encoder.
        max_length: maximum length of an input in tokens.

    Returns:
        The model in training mode.

    Raises:
        BadInput: if files are missing or damaged, do not fit one another or do not allow inputs of max_length tokens.
    """
    return MaskedLanguageModel(load_encoder(folder, max_length)).train()
