"""Tokenization: each partition of a split becomes an uncompressed Arrow file, which can be memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Encoding, Tokenizer

from include.fields.data import Preprocessing
from include.glue import Task
from tasks.encoder import tokens
from tasks.encoder.cleaning import clean_all
from tasks.encoder.labels import TYPES
from tasks.encoder.windows import Array, split
from tasks.stages.pipeline.preprocess.augment import Augment
from tasks.stages.pipeline.preprocess.slices import Slice
from tasks.staging import fetched, whole_file

#: The counts that a partition returns: its rows, their inputs (the windows of long texts, else one for
#: each row) and the tokens of these, the rows that were truncated to max_length, and the rows with an empty sentence.
COUNTS = ("rows", "windows", "tokens", "truncated", "empty")
_BATCH = 1000  # rows, because the encodings of a long text take hundreds of times its memory


@dataclass(frozen=True)
class TokenizeSlices:
    """Writes the token ids of the slice with a number to its file.

    Attributes:
        slices: all of them.
        task: what the rows are labeled with.
        options: how texts are cleaned and tokenized.
        tokenizer: the address of a tokenizer.json.
        augment: what changes the copies, if there are some.
    """

    slices: tuple[Slice, ...]
    task: Task
    options: Preprocessing
    tokenizer: str
    augment: Augment | None

    def __call__(self, number: int) -> Array:
        """Write the file of a slice, and return its COUNTS, [counts]."""
        own = self.slices[number]
        tokenizer, id_type = load_tokenizer(self.tokenizer, self.options.max_length, self.options.window_stride)
        schema, counts = self._schema(id_type), np.zeros(len(COUNTS), np.int64)
        sentences = self.task.sentence_columns
        with whole_file(own.file) as attempt, pa.ipc.new_file(str(attempt), schema) as writer:
            for batch in self._texts(own):
                encodings = tokens.encode(tokenizer, [batch.column(name).to_pylist() for name in sentences])
                windows, documents = split(encodings, self.options.window_stride)
                writer.write_batch(self._rows(batch, windows, documents, schema))
                counts += self._counts(batch, encodings, windows)
        return counts

    def _texts(self, own: Slice) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice with cleaned texts, and those of its copies with changed ones."""
        rules, sentences = self.options.clean, self.task.sentence_columns
        for piece in own.pieces:
            rows = piece.read(own.table, ("row", "label", *sentences))
            for name in sentences if rules else ():
                texts = pa.array(clean_all(rows[name].to_pylist(), rules), pa.string())
                rows = rows.set_column(rows.schema.get_field_index(name), name, texts)
            if piece.shift:
                assert self.augment is not None
                rows = self.augment.change(rows, sentences)
            yield from rows.combine_chunks().to_batches(_BATCH)

    def _schema(self, id_type: pa.DataType) -> pa.Schema:
        columns = {"row": pa.int64(), "label": TYPES[self.task.kind]}
        columns |= {"length": pa.uint16(), "first": pa.uint16(), "input_ids": pa.list_(id_type)}
        return pa.schema(columns | dict.fromkeys(self.task.sentence_columns, pa.string()))

    def _rows(
        self, batch: pa.RecordBatch, windows: list[Encoding], documents: Array, schema: pa.Schema
    ) -> pa.RecordBatch:
        ids = schema.field("input_ids").type.value_type
        sentences = self.task.sentence_columns
        columns = {name: batch.column(name).take(pa.array(documents)) for name in ("row", "label")}
        columns |= tokens.token_columns(windows, len(sentences) == 2, ids)
        columns |= {name: tokens.in_first_windows(batch.column(name), documents) for name in sentences}
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _counts(self, batch: pa.RecordBatch, encodings: list[Encoding], windows: list[Encoding]) -> list[int]:
        empty = np.zeros(batch.num_rows, bool)
        for name in self.task.sentence_columns:
            empty |= pc.equal(pc.utf8_trim_whitespace(batch.column(name)), "").to_numpy(zero_copy_only=False)
        cut = encodings if self.options.window_stride is None else ()
        truncated = sum(bool(encoding.overflowing) for encoding in cut)
        return [batch.num_rows, len(windows), int(tokens.lengths(windows).sum()), truncated, int(empty.sum())]


@lru_cache(maxsize=1)  # a Python worker processes several partitions and loads the tokenizer once
def load_tokenizer(address: str, max_length: int, stride: int | None = None) -> tuple[Tokenizer, pa.DataType]:
    """Load a shared tokenizer for the arguments of TokenizeSlices, and return it with the type of its token ids."""
    tokenizer = tokens.open_tokenizer(fetched(address), max_length, stride)
    return tokenizer, tokens.id_type(tokenizer)
