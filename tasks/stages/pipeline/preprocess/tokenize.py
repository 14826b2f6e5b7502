"""Tokenization on Spark: each partition of a split becomes an uncompressed Arrow file, which can be memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from tokenizers import Encoding, Tokenizer

from tasks.encoder import tokens
from tasks.encoder.windows import Array, split
from tasks.spark import shipped

#: The counts that a partition returns to the driver: its rows, their inputs (the windows of long texts, else one for
#: each row) and the tokens of these, the rows that were truncated to max_length, and the rows with an empty sentence.
COUNTS = ("rows", "windows", "tokens", "truncated", "empty")


@dataclass(frozen=True)
class TokenizePartition:
    """Writes the token ids of one partition to part-NUMBER.arrow; a function for DataFrame.mapInArrow.

    The tokenizer is a name that tasks.spark.ship returned. Neighboring windows of a long text share `stride` tokens;
    without a stride, texts are truncated to max_length tokens, including special tokens.
    """

    tokenizer: str
    max_length: int
    stride: int | None
    sentences: tuple[str, ...]
    label: pa.DataType
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the file, and yield one row with its COUNTS."""
        tokenizer, id_type = load_tokenizer(self.tokenizer, self.max_length, self.stride)
        schema, counts = self._schema(id_type), np.zeros(len(COUNTS), np.int64)
        task = TaskContext.get()
        assert task is not None  # only Spark calls this function, on executors
        file = Path(self.folder) / f"part-{task.partitionId():05d}.arrow"
        # Each attempt, such as a speculative one, writes its own file, so that only complete files are renamed.
        attempt = file.with_name(f".{file.name}.{task.taskAttemptId()}")
        with pa.OSFile(str(attempt), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                encodings = tokens.encode(tokenizer, [batch.column(name).to_pylist() for name in self.sentences])
                windows, documents = split(encodings, self.stride)
                writer.write_batch(self._rows(batch, windows, documents, schema))
                counts += self._counts(batch, encodings, windows)
        attempt.replace(file)
        yield pa.RecordBatch.from_arrays([pa.array([count]) for count in counts], list(COUNTS))

    def _schema(self, id_type: pa.DataType) -> pa.Schema:
        columns = {"row": pa.int64(), "label": self.label}
        columns |= {"length": pa.uint16(), "first": pa.uint16(), "input_ids": pa.list_(id_type)}
        return pa.schema(columns | dict.fromkeys(self.sentences, pa.string()))

    def _rows(
        self, batch: pa.RecordBatch, windows: list[Encoding], documents: Array, schema: pa.Schema
    ) -> pa.RecordBatch:
        ids = schema.field("input_ids").type.value_type
        columns = {name: batch.column(name).take(pa.array(documents)) for name in ("row", "label")}
        columns |= tokens.token_columns(windows, len(self.sentences) == 2, ids)
        columns |= {name: tokens.in_first_windows(batch.column(name), documents) for name in self.sentences}
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _counts(self, batch: pa.RecordBatch, encodings: list[Encoding], windows: list[Encoding]) -> list[int]:
        empty = np.zeros(batch.num_rows, bool)
        for name in self.sentences:
            empty |= pc.equal(pc.utf8_trim_whitespace(batch.column(name)), "").to_numpy(zero_copy_only=False)
        truncated = sum(bool(encoding.overflowing) for encoding in encodings) if self.stride is None else 0
        return [batch.num_rows, len(windows), int(tokens.lengths(windows).sum()), truncated, int(empty.sum())]


@lru_cache(maxsize=1)  # a Python worker processes several partitions and loads the tokenizer once
def load_tokenizer(name: str, max_length: int, stride: int | None = None) -> tuple[Tokenizer, pa.DataType]:
    """Load a shipped tokenizer for the arguments of TokenizePartition, and return it with the type of its token ids."""
    tokenizer = tokens.open_tokenizer(shipped(name), max_length, stride)
    return tokenizer, tokens.id_type(tokenizer)
