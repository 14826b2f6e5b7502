"""Tokenize texts into the columns that a TokenTable reads, without torch, which Spark's executors do not need."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Encoding, Tokenizer

from include.stages import BadInput

#: Rows with this number or a higher one are the copies that augmentation adds to the training rows.
COPY = 2**40
#: Candidates for the token that replaces a masked word. The first one that the tokenizer knows is used.
MASKS = ("[MASK]", "<mask>", "[UNK]", "<unk>")


def open_tokenizer(file: Path, max_length: int, stride: int | None = None) -> Tokenizer:
    """Load a tokenizer that truncates its inputs to `max_length` tokens with special ones, and does not pad them.

    The field `overflowing` of an encoding has the other windows of a text.
    """
    try:
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.encode("\u2603 ")
    except Exception as error:  # The library raises no more specific class.
        raise BadInput(f"{file} is not a tokenizer: fetch the model again ({error})") from error
    tokenizer.no_padding()
    special = tokenizer.num_special_tokens_to_add(is_pair=False)
    if stride is not None and stride >= max_length - special:
        raise BadInput(
            f"windows of {max_length} tokens, {special} of them special, cannot share {stride}: write "
            f"preprocessing.stride: {max(0, max_length - special - 1)} or less"
        )
    tokenizer.enable_truncation(max_length, stride=stride or 0, strategy="longest_first")
    return tokenizer


def mask_token(tokenizer: Path) -> str:
    """Return the special token of a tokenizer.json that masks a word. The tokenizer recognizes it within any text."""
    tokens = Tokenizer.from_file(str(tokenizer)).get_added_tokens_decoder().values()
    special = {token.content for token in tokens if token.special}
    for mask in MASKS:
        if mask in special:
            return mask
    raise BadInput(
        f"{tokenizer} has none of the special tokens {', '.join(MASKS)}, which preprocessing.augment: [masking] needs: "
        "remove masking"
    )


def id_type(tokenizer: Tokenizer) -> pa.DataType:
    """Return the smallest unsigned integer type that can hold every id of the vocabulary."""
    return pa.from_numpy_dtype(np.min_scalar_type(max(tokenizer.get_vocab().values())))


def encode(tokenizer: Tokenizer, columns: list[list[str]]) -> list[Encoding]:
    """Tokenize a batch of texts, given as one column of sentences or two."""
    return tokenizer.encode_batch_fast(columns[0] if len(columns) == 1 else list(zip(*columns, strict=True)))


def token_columns(encodings: list[Encoding], pairs: bool, ids: pa.DataType) -> dict[str, pa.Array]:
    """Return the columns of a TokenTable that hold tokens, their numbers, and those of the first segments."""
    sizes = lengths(encodings)
    seconds = [sum(encoding.type_ids) for encoding in encodings] if pairs else 0
    values: npt.NDArray[Any] = np.fromiter(
        chain.from_iterable(encoding.ids for encoding in encodings), ids.to_pandas_dtype(), sizes.sum()
    )
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return {
        "length": pa.array(sizes, pa.uint16()),
        "first": pa.array(sizes - seconds, pa.uint16()),
        "input_ids": pa.ListArray.from_arrays(offsets, pa.array(values), type=pa.list_(ids)),
    }


def in_first_windows(texts: list[str] | pa.Array, documents: npt.NDArray[np.int64]) -> pa.Array:
    """Return a column with each text in the row of its first window, given the position of each window's text."""
    others = np.diff(documents, prepend=-1) == 0
    return pa.array(texts, pa.string()).take(pa.array(documents, mask=others))


def lengths(encodings: list[Encoding]) -> npt.NDArray[np.int64]:
    """Return the number of tokens of each row, [rows]."""
    return np.fromiter(map(len, encodings), np.int64, len(encodings))
