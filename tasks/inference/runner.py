"""The runner of a trained model: texts in, logits out, whatever form the model has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from include.fields.results import Prediction
from tasks.encoder import tokens
from tasks.encoder.batching import ROWS_OF_LONGER, TIERS, Array, TokenTable, length_batches
from tasks.encoder.cleaning import clean_all
from tasks.encoder.spec import HeadSpec
from tasks.encoder.windows import pool, split
from tasks.inference.packaged_backends import padded_length

#: The number of rows that are sorted by length together: texts, or the windows of long ones. It bounds the memory, and
#: is large enough for batches of nearly equal lengths.
READ_AHEAD = 8192
_READ = 256  # texts that are tokenized at once: what a tokenizer returns takes much more memory than the token ids
#: The number of rows in a static batch.
STATIC_ROWS = 32


class Backend(Protocol):
    """A trained model in a form that computes logits. A form that wants few shapes pads its batches itself."""

    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch, or scores in the task's own range, float32 [rows, outputs].

        All inputs are int64 [rows, tokens]. Segments are ignored if the encoder has none.
        """


class Runner:
    """Computes the logits of texts, or of rows that have been tokenized already. Its `head` is that of the model."""

    def __init__(
        self, folder: Path, backend: Backend, prediction: Prediction | None = None, head: HeadSpec | None = None
    ) -> None:
        if head is None:
            from tasks.encoder.loading import read_head  # which imports PyTorch

            head = read_head(folder)
        self.head = head
        self._folder, self._backend, self._prediction = folder, backend, prediction or Prediction()

    def logits(self, texts: Iterable[Sequence[str]]) -> Iterator[Array]:
        """Yield the logits of texts, or of pairs, in their order, float32 [at most READ_AHEAD, outputs]."""
        for table in self._tables(iter(texts)):
            yield self.documents(table, np.arange(len(table.documents)))

    def documents(self, table: TokenTable, chosen: Array) -> Array:
        """Compute the logits, float32 [n, outputs], of documents at ascending positions in `documents` of a table."""
        rows = table.windows(chosen)
        logits = np.empty((len(rows), self.head.outputs), np.float32)
        for batch in batches(table.lengths[rows], self._prediction):
            logits[batch] = self._backend.logits(*table.padded(rows[batch]))
        return pool(logits, table.rows[rows])

    def _tables(self, texts: Iterator[Sequence[str]]) -> Iterator[TokenTable]:
        """Tokenize the texts. A table is complete as soon as it has READ_AHEAD rows or more."""
        parts: list[pa.Table] = []
        rows = 0
        while some := list(islice(texts, min(_READ, READ_AHEAD - rows))):
            columns = [clean_all(column, self.head.cleaning) for column in zip(*some, strict=True)]
            windows, documents = split(tokens.encode(self._tokenizer, columns), self.head.stride)
            made = tokens.token_columns(windows, len(columns) == 2, self._ids)
            numbers = len(parts) * _READ + documents
            parts.append(pa.table({"row": numbers, "label": pa.nulls(len(windows), pa.int64()), **made}))
            rows += len(windows)
            if rows >= READ_AHEAD:
                yield TokenTable(self._folder, pa.concat_tables(parts))
                parts, rows = [], 0
        if parts:
            yield TokenTable(self._folder, pa.concat_tables(parts))

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return tokens.open_tokenizer(self._folder / "tokenizer.json", self.head.max_length, self.head.stride)

    @cached_property
    def _ids(self) -> pa.DataType:
        return tokens.id_type(self._tokenizer)


def tier(mean_length: float) -> int:
    """Return the number of rows per batch for rows of this mean length in tokens."""
    return next((rows for longest, rows in TIERS if mean_length <= longest), ROWS_OF_LONGER)


def batches(lengths: Array, prediction: Prediction) -> list[Array]:
    """Divide rows of these lengths, [n], into batches, of similar lengths unless static, and return their positions."""
    if not len(lengths):
        return []
    if prediction.batching == "static":
        return list(np.array_split(np.arange(len(lengths)), range(STATIC_ROWS, len(lengths), STATIC_ROWS)))
    if prediction.batching == "tokens":
        return length_batches(lengths, batch_tokens=prediction.batch_tokens, padded=padded_length)
    return length_batches(lengths, batch_size=tier(float(lengths.mean())))
