"""A tiny BERT with WordPiece, and text that it can learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"word{number}" for number in range(30)]
PIECES = [*SPECIAL, *WORDS, "play", "##ing", "##er", "##s"]
CLS, SEP, MASK = (PIECES.index(name) for name in ("[CLS]", "[SEP]", "[MASK]"))


def tiny_encoder(folder: Path, mask_token: str | None = "[MASK]") -> Path:
    """Two layers, no dropout, random weights."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(PIECES), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer(), pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token=mask_token,
    )  # fmt: skip
    fast.save_pretrained(folder)
    return folder


def tokenizer() -> Tokenizer:
    words = Tokenizer(WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return words


def text(count: int, seed: int = 0) -> list[str]:
    """Documents of 3 to 59 words, of which the first ones are far more frequent than the last ones."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(WORDS) + 1) ** 2
    return [" ".join(random.choice(WORDS, length, p=shares / shares.sum())) for length in random.integers(3, 60, count)]
