"""The runner of a trained model: texts in, logits out, whatever form the model has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from include.sections import Prediction
from tasks.encoder import tokens
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.cleaning import clean_all
from tasks.encoder.loading import read_head
from tasks.inference.backend import Backend
from tasks.inference.batches import batches

#: The number of texts that are tokenized and sorted by length together. It bounds the memory, and is large enough for
#: batches of nearly equal lengths.
WINDOW = 8192


class Runner:
    """Computes the logits of texts, or of rows that have been tokenized already.

    Attributes:
        head: the head of the model: its kind, the names of its classes, the maximum length of an input, and the
            rules that clean the texts.

    Args:
        folder: the folder of the model, with its config.json and its tokenizer.
        backend: the model in the form that computes.
        prediction: the experiment's prediction section, which determines the batches.

    Raises:
        BadInput: if files of the folder are missing or damaged.
    """

    def __init__(self, folder: Path, backend: Backend, prediction: Prediction | None = None) -> None:
        self.head = read_head(folder)
        self._folder, self._backend, self._prediction = folder, backend, prediction or Prediction()

    def logits(self, texts: Iterable[Sequence[str]]) -> Iterator[Array]:
        """Compute the logits of texts.

        Args:
            texts: for each row its text, or both texts of a pair, which are cleaned as in training. At most WINDOW rows
                are read ahead.

        Yields:
            The logits of the next rows, in the order of the texts, float32 [at most WINDOW, outputs].
        """
        rest = iter(texts)
        while window := list(islice(rest, WINDOW)):
            table = self._tokenized(window)
            logits = np.empty((len(table), self.head.outputs), np.float32)
            for indices, values in self.batches(table, np.arange(len(table))):
                logits[indices] = values
            yield logits

    def batches(self, table: TokenTable, rows: Array) -> Iterator[tuple[Array, Array]]:
        """Compute some rows of a table.

        Args:
            table: the table.
            rows: the positions of the rows in the table, [n].

        Yields:
            For each batch the positions of its rows in the table, [m], and their logits, float32 [m, outputs].
        """
        for batch in batches(table.lengths[rows], self._prediction):
            indices = rows[batch]
            yield indices, self._backend.logits(*table.padded(indices))

    def _tokenized(self, texts: list[Sequence[str]]) -> TokenTable:
        columns = [clean_all(column, self.head.cleaning) for column in zip(*texts, strict=True)]
        encodings = tokens.encode(self._tokenizer, columns)
        made = tokens.token_columns(encodings, len(columns) == 2, self._ids)
        labels = pa.nulls(len(texts), pa.int64())
        return TokenTable(self._folder, pa.table({"row": np.arange(len(texts)), "label": labels, **made}))

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return tokens.open_tokenizer(self._folder / "tokenizer.json", self.head.max_length)

    @cached_property
    def _ids(self) -> pa.DataType:
        return tokens.id_type(self._tokenizer)
