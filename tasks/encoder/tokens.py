"""Texts to token ids, in the columns that a TokenTable reads: preprocess's files and what is tokenised in memory.

Light: Spark's executors have no need of torch here.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Encoding, Tokenizer

from include.stages import BadInput


def open_tokenizer(file: Path, max_length: int) -> Tokenizer:
    """A tokenizer.json, set to cut at max_length tokens, special ones included (a pair: its longer sentence first).

    Raises BadInput when the file is damaged, or cannot tokenise a word that it does not know.
    """
    try:
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.encode("\u2603 ")
    except Exception as error:  # it raises nothing else
        raise BadInput(f"{file} is not a tokenizer: fetch the model again ({error})") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    return tokenizer


def id_type(tokenizer: Tokenizer) -> pa.DataType:
    """The smallest unsigned integer that holds every id of the vocabulary."""
    return pa.from_numpy_dtype(np.min_scalar_type(max(tokenizer.get_vocab().values())))


def encode(tokenizer: Tokenizer, columns: list[list[str]]) -> list[Encoding]:
    """One call for a whole batch, given as one column of sentences or two."""
    return tokenizer.encode_batch_fast(columns[0] if len(columns) == 1 else list(zip(*columns, strict=True)))


def token_columns(encodings: list[Encoding], pairs: bool, ids: pa.DataType) -> dict[str, pa.Array]:
    """Length (tokens), first (tokens of the first segment) and input_ids, [rows] each."""
    sizes = lengths(encodings)
    seconds = [sum(encoding.type_ids) for encoding in encodings] if pairs else 0
    return {
        "length": pa.array(sizes, pa.uint16()),
        "first": pa.array(sizes - seconds, pa.uint16()),
        "input_ids": _ids(encodings, sizes, ids),
    }


def lengths(encodings: list[Encoding]) -> npt.NDArray[np.int64]:
    """Tokens of each row."""
    return np.fromiter(map(len, encodings), np.int64, len(encodings))


def _ids(encodings: list[Encoding], sizes: npt.NDArray[np.int64], kind: pa.DataType) -> pa.ListArray:
    ids: npt.NDArray[Any] = np.fromiter(
        chain.from_iterable(encoding.ids for encoding in encodings), kind.to_pandas_dtype(), sizes.sum()
    )
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids), type=pa.list_(kind))
