"""Small samples for tests: a random encoder with its tokenizer, and splits as preprocess writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer
from tokenizers.models import Model, WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from tasks.encoder.labels import to_column
from tasks.encoder.tokens import in_first_windows
from tasks.encoder.windows import split

FILLER = [f"word{number}" for number in range(40)]
#: The words that decide about the labels of a multi-label sample.
CUES = ("good", "bad", "word35")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", *FILLER]


def tiny_encoder(folder: Path, **config: Any) -> Path:
    """Save a two-layer BERT with random weights and no dropout in the format of the Hugging Face hub."""
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    return save_encoder(folder, tokenizer(), special, **{"vocab_size": len(WORDS), **config})


def save_encoder(folder: Path, words: Tokenizer, special: Mapping[str, str | None], **config: Any) -> Path:
    """Save a tiny BERT with random weights, and a tokenizer with these special tokens."""
    torch.manual_seed(0)
    values = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
        "max_position_embeddings": 64, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    BertModel(BertConfig(**{**values, **config})).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)  # type: ignore[no-untyped-call]
    return folder


def edit_config(folder: Path, **values: Any) -> None:
    """Change values of a folder's config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def tokenizer() -> Tokenizer:
    """Return a tokenizer for which every word is a token."""
    return of_words(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))


def of_words(model: Model) -> Tokenizer:
    """Return a tokenizer that splits at white space and adds [CLS] (id 2) and [SEP] (id 3)."""
    words = Tokenizer(model)
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return words


def reviews(count: int, seed: int = 0) -> tuple[list[tuple[str]], list[int]]:
    """Return sentences of 3 to 20 words and their labels; one word is good (label 1) or bad (label 0)."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    sentences = []
    for label in labels:
        words = list(random.choice(FILLER, random.integers(2, 20)))
        words.insert(int(random.integers(len(words) + 1)), ("bad", "good")[label])
        sentences.append((" ".join(words),))
    return sentences, [int(label) for label in labels]


def stories(count: int, seed: int = 0) -> tuple[list[tuple[str]], list[int]]:
    """Return texts of 5 to 90 words and their labels; a few words, anywhere in the text, are good or bad."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    texts = []
    for label in labels:
        words = random.choice(FILLER, random.integers(5, 90))
        words[random.random(len(words)) < 0.2] = ("bad", "good")[label]
        texts.append((" ".join(words),))
    return texts, [int(label) for label in labels]


def write_split(
    folder: Path,
    sentences: Sequence[tuple[str, ...]],
    labels: Sequence[float] | Sequence[tuple[int, ...]] | None,
    parts: int = 2,
    words: Tokenizer | None = None,
    stride: int | None = None,
) -> Path:
    """Write a split as part-*.arrow files with record batches of ten rows, and return its folder.

    With a stride, which must be that of the tokenizer `words`, long texts are divided into windows.
    """
    folder.mkdir(parents=True)
    words = words or tokenizer()
    texts_encoded = [words.encode(texts[0], texts[1] if len(texts) > 1 else None) for texts in sentences]
    encoded, documents = split(texts_encoded, stride)
    columns = {
        "row": pa.array(documents, pa.int64()),
        "label": _label_column(labels, len(sentences)).take(pa.array(documents)),
        "length": pa.array([len(line.ids) for line in encoded], pa.uint16()),
        "first": pa.array([line.type_ids.count(0) for line in encoded], pa.uint16()),
        "input_ids": pa.array([line.ids for line in encoded], pa.list_(pa.uint16())),
    }
    for position in range(len(sentences[0]) if sentences else 1):
        columns[f"sentence{position + 1}"] = in_first_windows([texts[position] for texts in sentences], documents)
    table = pa.table(columns)
    for number, rows in enumerate(np.array_split(np.arange(len(table)), parts)):
        with pa.ipc.new_file(folder / f"part-{number:05}.arrow", table.schema) as file:
            file.write_table(table.take(pa.array(rows)), max_chunksize=10)
    return folder


def _label_column(labels: Sequence[float] | Sequence[tuple[int, ...]] | None, rows: int) -> pa.Array:
    if not labels:
        return pa.array([None] * rows, pa.int64())
    return to_column(np.array(labels))


def label_sets(count: int, seed: int = 0) -> tuple[list[tuple[str]], list[tuple[int, ...]]]:
    """Return sentences of 5 to 15 words and whether each of three labels applies, which one word each decides."""
    random = np.random.default_rng(seed)
    chosen = random.random((count, len(CUES))) < (0.5, 0.4, 0.2)
    sentences = []
    for row in chosen:
        words = [*random.choice(FILLER[:30], random.integers(5, 13)), *np.array(CUES)[row]]
        sentences.append((" ".join(random.permutation(words)),))
    return sentences, [tuple(row) for row in chosen.astype(int).tolist()]
