"""What the check trains on: an encoder with random weights, and rows as long as those of SST-2."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from transformers.utils import logging

logging.disable_progress_bar()  # type: ignore[no-untyped-call]
Array = npt.NDArray[Any]
#: The number of rows of SST-2's training split that have 3, 4, ... tokens, as BERT's uncased tokenizer counts them.
SST2 = (
    1978, 5322, 6065, 5345, 4749, 4155, 3713, 3267, 2947, 2650, 2413, 2138, 1950, 1777, 1661, 1515, 1373, 1285, 1132,
    1106, 1046, 909, 820, 806, 733, 692, 628, 538, 491, 442, 448, 400, 337, 304, 286, 242, 195, 203, 192, 155, 148, 130,
    89, 82, 85, 73, 55, 42, 50, 40, 36, 19, 21, 22, 15, 8, 6, 3, 2, 5, 5, 1, 2, 2,
)  # fmt: skip
SHORTEST = 3
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
#: Transformers' defaults are BERT-base; these are of an encoder on which a CPU takes a step in milliseconds.
BASE: Mapping[str, Any] = {}
SMALL: Mapping[str, Any] = {
    "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
    "max_position_embeddings": 128,
}  # fmt: skip


def write_encoder(folder: Path, config: Mapping[str, Any]) -> BertConfig:
    """Write a BERT with random weights, and a tokenizer for Trainer, which takes its padding from there."""
    values = BertConfig(**config)
    BertModel(values, add_pooling_layer=False).save_pretrained(folder)
    words = Tokenizer(WordLevel({word: number for number, word in enumerate(SPECIAL.values())}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=words, **SPECIAL).save_pretrained(folder)  # type: ignore[no-untyped-call]
    return values


def lengths(count: int, random: np.random.Generator) -> Array:
    """Numbers of tokens, int64 [count], distributed as in SST-2."""
    share = np.array(SST2) / sum(SST2)
    return SHORTEST + random.choice(len(SST2), count, p=share)


def write_rows(folder: Path, count: int, words: int, seed: int) -> Path:
    """Write a split as preprocess does: words that are as unequally frequent as in a language, and random labels."""
    random = np.random.default_rng(seed)
    tokens = lengths(count, random)
    ids = np.exp(random.random(tokens.sum()) * np.log(words)).astype(np.uint16)  # by Zipf's law
    offsets = np.concatenate([[0], np.cumsum(tokens)]).astype(np.int32)
    table = pa.table(
        {
            "row": pa.array(np.arange(count)),
            "label": pa.array(random.integers(0, 2, count)),
            "length": pa.array(tokens.astype(np.uint16)),
            "first": pa.array(tokens.astype(np.uint16)),
            "input_ids": pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids)),
            "sentence1": pa.array([""] * count),
        }
    )
    folder.mkdir(parents=True)
    with pa.ipc.new_file(folder / "part-00000.arrow", table.schema) as file:
        file.write_table(table)
    return folder


def operations(config: BertConfig, tokens: Array) -> float:
    """Floating-point operations that forward and backward pass need for rows of these numbers of tokens, int64 [rows].

    They are those of the layers' matrix products, without padding, embeddings and what is computed again: 6 for each
    weight and token, and 12 for each hidden unit and pair of tokens of a row, in every layer.
    """
    hidden, between = config.hidden_size, config.intermediate_size
    weights = 4 * hidden * hidden + 2 * hidden * between
    each_layer = 6.0 * weights * tokens.sum() + 12.0 * hidden * np.square(tokens, dtype=np.float64).sum()
    return float(config.num_hidden_layers * each_layer)
