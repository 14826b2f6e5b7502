"""A tiny BERT with WordPiece, and text that it can learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from tests.tasks.encoder.samples import of_words, save_encoder

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"word{number}" for number in range(30)]
PIECES = [*SPECIAL, *WORDS, "play", "##ing", "##er", "##s"]
CLS, SEP, MASK = (PIECES.index(name) for name in ("[CLS]", "[SEP]", "[MASK]"))


def tiny_encoder(folder: Path, mask_token: str | None = "[MASK]") -> Path:
    """Two layers, no dropout, random weights."""
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return save_encoder(folder, tokenizer(), {**special, "mask_token": mask_token}, vocab_size=len(PIECES))


def tokenizer() -> Tokenizer:
    return of_words(WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]"))


def text(count: int, seed: int = 0) -> list[str]:
    """Documents of 3 to 59 words, of which the first ones are far more frequent than the last ones."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(WORDS) + 1) ** 2
    return [" ".join(random.choice(WORDS, length, p=shares / shares.sum())) for length in random.integers(3, 60, count)]
