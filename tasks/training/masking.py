"""Masked language modeling: which tokens of a row are to be predicted, and what the model sees in their place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from transformers import AutoTokenizer

from include.stages import BadInput
from tasks.encoder.batching import Array

IGNORED = -100  # the label of tokens that are not predicted; torch's cross_entropy ignores it by default
HIDDEN = 0.15  # the share of the words that are predicted (Devlin et al. 2019)
MASKED, REPLACED = 0.8, 0.1  # of these; the other 10 % stay unchanged


@dataclass(frozen=True)
class Vocabulary:
    """What masking needs to know about a tokenizer."""

    mask: int  # id of the token that hides a word
    ordinary: Array  # for each id, whether it is not a special token, [words]
    continues: Array  # for each id, whether it continues a word (WordPiece's ##), [words]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the tokenizer in an encoder's folder. Raises BadInput when it has no mask token."""
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if tokenizer.mask_token_id is None:
            raise BadInput(f"the tokenizer in {folder} has no mask token, so pretraining.text cannot be used with it")
        words = tokenizer.get_vocab()
        size = max(words.values()) + 1
        ordinary, continues = np.zeros(size, bool), np.zeros(size, bool)
        ordinary[list(words.values())] = True
        ordinary[[*tokenizer.all_special_ids, *tokenizer("")["input_ids"]]] = False
        continues[[number for word, number in words.items() if word.startswith("##")]] = True
        return cls(tokenizer.mask_token_id, ordinary, continues)


@dataclass(frozen=True)
class Masking:
    """Hides tokens of a row. Which ones depends on the seed, the step and the row alone."""

    vocabulary: Vocabulary
    share: float  # of a row's words, and so of its ordinary tokens on average, that is hidden; at least one word
    whole_words: bool  # whether the pieces of a word are hidden together
    seed: int

    def __post_init__(self) -> None:
        if self.whole_words and not self.vocabulary.continues.any():
            raise BadInput(
                "pretraining.whole_words needs an encoder with a WordPiece vocabulary, whose later pieces begin with "
                "##: write pretraining.whole_words: false"
            )

    def count(self, ids: Array) -> float:
        """Return the number of tokens of a row that are hidden on average, and 1 for a row of special tokens alone."""
        words = self._words(ids[self.vocabulary.ordinary[ids]])
        number = len(np.unique(words))
        return len(words) / number * self._hidden_words(number) if number else 1.0

    def hide(self, ids: Array, step: int, row: int) -> tuple[Array, Array]:
        """Hide words of a row at a step; return the ids that the model sees and the labels, [tokens] each."""
        random = np.random.default_rng([self.seed, step, row])
        candidates = np.flatnonzero(self.vocabulary.ordinary[ids])
        words = self._words(ids[candidates])
        order = random.permutation(len(np.unique(words)))
        hidden = candidates[np.isin(words, order[: self._hidden_words(len(order))])]
        labels, seen = np.full(len(ids), IGNORED, np.int64), ids.astype(np.int64)
        labels[hidden] = ids[hidden]
        fate = random.random(len(hidden))
        seen[hidden[fate < MASKED]] = self.vocabulary.mask
        replaced = hidden[fate >= 1 - REPLACED]
        seen[replaced] = random.choice(np.flatnonzero(self.vocabulary.ordinary), len(replaced))
        return seen, labels

    def _words(self, ids: Array) -> Array:
        starts = ~self.vocabulary.continues[ids] if self.whole_words else np.ones(len(ids), bool)
        starts[:1] = True  # a row may begin inside a word
        words: Array = np.cumsum(starts) - 1
        return words

    def _hidden_words(self, words: int) -> int:
        return max(1, round(self.share * words))
