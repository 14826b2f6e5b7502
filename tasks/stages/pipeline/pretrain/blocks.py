"""Cut documents into blocks of token ids, in one Arrow file that TokenTable can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from tokenizers import Encoding

from tasks.encoder.tokens import open_tokenizer
from tasks.training.masking import Vocabulary

AT_ONCE = 256  # documents per call of the tokenizer


@dataclass(frozen=True)
class Block:
    """The token ids of a document or a part of one, including special tokens, and their text."""

    ids: list[int]
    text: str


class BlockWriter:
    """Cuts documents into blocks of max_length tokens. The last block is shorter: no block contains two documents."""

    def __init__(self, encoder: Path, max_length: int) -> None:
        """Load the tokenizer of an encoder's folder for blocks of max_length tokens, including special tokens."""
        self._tokenizer = open_tokenizer(encoder / "tokenizer.json", max_length)
        self._ordinary = Vocabulary.read(encoder).ordinary
        id_type = pa.from_numpy_dtype(np.min_scalar_type(len(self._ordinary)))
        columns = {"row": pa.int64(), "label": pa.int64(), "length": pa.uint16(), "first": pa.uint16()}
        self._schema = pa.schema({**columns, "input_ids": pa.list_(id_type), "sentence1": pa.string()})

    def write(self, documents: Iterable[str], folder: Path) -> dict[str, int]:
        """Write the blocks of documents to a new folder, and return the numbers of documents, blocks and own tokens."""
        folder.mkdir(parents=True)
        counts, rest = {"documents": 0, "blocks": 0, "tokens": 0}, iter(documents)
        with pa.ipc.new_file(folder / "part-00000.arrow", self._schema) as file:
            while texts := list(islice(rest, AT_ONCE)):
                blocks = [block for block in self._cut(texts) if self._ordinary[block.ids].any()]
                file.write_batch(self._rows(blocks, first=counts["blocks"]))
                counts["documents"] += len(texts)
                counts["blocks"] += len(blocks)
                counts["tokens"] += sum(int(self._ordinary[block.ids].sum()) for block in blocks)
        return counts

    def _cut(self, texts: list[str]) -> Iterator[Block]:
        for text, encoding in zip(texts, self._tokenizer.encode_batch(texts), strict=True):
            pieces: list[Encoding] = [encoding, *encoding.overflowing]
            bounds = [0, *(max(piece.offsets)[1] for piece in pieces)]
            for piece, (start, stop) in zip(pieces, pairwise(bounds), strict=True):
                yield Block(piece.ids, text[start:stop].strip())

    def _rows(self, blocks: list[Block], first: int) -> pa.RecordBatch:
        lengths = [len(block.ids) for block in blocks]
        columns = {
            "row": range(first, first + len(blocks)),
            "label": [None] * len(blocks),
            "length": lengths,
            "first": lengths,
            "input_ids": [block.ids for block in blocks],
            "sentence1": [block.text for block in blocks],
        }
        return pa.RecordBatch.from_pydict(columns, schema=self._schema)
