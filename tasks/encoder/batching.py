"""Read token ids from memory-mapped Arrow files, and form batches of rows of similar length.

PyTorch, which takes a second to import, is imported for batches of tensors only: forms of packages compute arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from include.stages import BadInput
from tasks.encoder.labels import from_column
from tasks.encoder.windows import first_windows

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]
#: The tiers of the papers: the largest average length in tokens, and the number of rows per batch. Batches of longer
#: rows have ROWS_OF_LONGER rows.
TIERS = ((32, 128), (64, 64), (128, 32))
ROWS_OF_LONGER = 16
_COLUMNS = ("row", "label", "length", "first", "input_ids", "sentence1")


@dataclass(frozen=True)
class Packing:
    """The positions of the tokens in a padded batch, which is packed into a single sequence without padding."""

    mask: torch.Tensor  # true for tokens and false for padding, bool [rows, longest row]
    places: torch.Tensor  # indices of the tokens in the flattened batch, int64 [tokens]
    offsets: torch.Tensor  # index of each row's first token in the sequence, and of its end, int32 [rows + 1]

    @classmethod
    def of(cls, attention_mask: torch.Tensor) -> Self:
        """Return the packing of a batch with this mask, which should be on the CPU: a GPU would have to be awaited."""
        from torch.nn import functional

        mask = attention_mask.bool()
        ends = mask.sum(1).cumsum(0)
        return cls(mask, mask.flatten().nonzero().squeeze(1), functional.pad(ends, (1, 0)).int())

    def to(self, device: torch.device) -> Packing:
        """Return the same packing on a device."""
        return Packing(*(send(part, device) for part in (self.mask, self.places, self.offsets)))

    @property
    def positions(self) -> torch.Tensor:
        """The position of each token in its row, counted from 0, int64 [tokens]."""
        return self.places % self.mask.shape[1]

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        """Drop the padding: convert values of shape [rows, longest row, ...] to [tokens, ...]."""
        return values.flatten(0, 1).index_select(0, self.places)

    def pad(self, values: torch.Tensor) -> torch.Tensor:
        """Restore the padding as zeros: convert values of shape [tokens, ...] to [rows, longest row, ...]."""
        each = values.shape[1:]
        padded = values.new_zeros(self.mask.numel(), *each)
        return padded.index_copy(0, self.places, values).view(*self.mask.shape, *each)


@dataclass(frozen=True)
class Teaching:
    """What a teacher says of the rows of a batch."""

    logits: torch.Tensor  # of the teacher, float32 [rows, outputs]
    hard: torch.Tensor  # how much the loss with regard to the label counts, 0 for rows without one, float32 [rows]

    def to(self, device: torch.device) -> Teaching:
        """Return the same on a device."""
        return Teaching(send(self.logits, device), send(self.hard, device))


@dataclass(frozen=True)
class Batch:
    """A padded batch, whose labels are empty for a split without labels."""

    input_ids: torch.Tensor  # int64 [rows, longest row]; 0 for padding, which is masked
    attention_mask: torch.Tensor  # 1 for tokens and 0 for padding, int64 [rows, longest row]
    token_type_ids: torch.Tensor  # 1 for tokens of the second segment, otherwise 0, int64 [rows, longest row]
    labels: torch.Tensor  # class ids (int64) or scores (float32), [rows], or zeros and ones (float32), [rows, labels]
    packing: Packing | None = None  # if the encoder does not compute the padding
    hidden: torch.Tensor | None = None  # in pre-training, indices of the hidden tokens in the flattened batch, int64
    teaching: Teaching | None = None  # if there is a teacher

    def packed(self) -> Batch:
        """Return the same batch with a packing, so that the encoder does not compute the padding."""
        return replace(self, packing=Packing.of(self.attention_mask))

    @property
    def places(self) -> int:
        """The number of tokens that the encoder computes, including padding unless the batch is packed."""
        return self.attention_mask.numel() if self.packing is None else len(self.packing.places)

    def to(self, device: torch.device) -> Batch:
        """Return the same batch on a device."""
        parts = (self.input_ids, self.attention_mask, self.token_type_ids, self.labels)
        ids, mask, segments, labels = (send(part, device) for part in parts)
        packing = None if self.packing is None else self.packing.to(device)
        hidden = None if self.hidden is None else send(self.hidden, device)
        return Batch(ids, mask, segments, labels, packing, hidden, self.teaching and self.teaching.to(device))


class TokenTable:
    """One split as the stage preprocess wrote it.

    A document is a row, or several that are next to one another and have the same row number: the windows of a long
    text. Token ids and sentences are memory-mapped, so all processes share them in the page cache.
    """

    def __init__(self, folder: Path, table: pa.Table) -> None:
        self.folder = folder
        self.rows: Array = table["row"].to_numpy()  # row numbers
        self.documents = first_windows(self.rows)  # positions of the first row of each document
        self.lengths: Array = table["length"].to_numpy().astype(np.int64)  # in tokens
        self._first: Array = table["first"].to_numpy().astype(np.int64)
        self._labels: Array | None = None if table["label"].null_count else from_column(table["label"])
        self._texts = [table[name] for name in ("sentence1", "sentence2") if name in table.column_names]
        chunks = table["input_ids"].chunks
        self._values: list[Array] = [chunk.values.to_numpy(zero_copy_only=True) for chunk in chunks]
        self._chunk: Array = np.repeat(np.arange(len(chunks)), [len(chunk) for chunk in chunks])
        offsets = [chunk.offsets.to_numpy().astype(np.int64) for chunk in chunks]
        self._start: Array = np.concatenate([np.zeros(0, np.int64), *(offset[:-1] for offset in offsets)])
        sizes = np.concatenate([np.zeros(0, np.int64), *(np.diff(offset) for offset in offsets)])
        if not np.array_equal(sizes, self.lengths):
            raise BadInput(f"{folder}: the column length does not match input_ids: run the stage preprocess again")

    @classmethod
    def open(cls, folder: Path, *more: Path) -> Self:
        """Map one or all part-*.arrow files of a split; raise BadInput if missing, damaged, or without a column.

        The rows of more folders follow in their order.
        """
        parts = [folder] if folder.is_file() else sorted(folder.glob("part-*.arrow"))
        parts += [part for other in more for part in sorted(other.glob("part-*.arrow"))]
        if not parts:
            raise BadInput(f"{folder} contains no part-*.arrow files: run the stage preprocess first")
        try:
            table = pa.concat_tables([pa.ipc.open_file(pa.memory_map(str(part))).read_all() for part in parts])
        except (pa.ArrowInvalid, OSError) as error:
            raise BadInput(
                f"{folder} contains a damaged Arrow file: run the stage preprocess again ({error})"
            ) from error
        missing = [name for name in _COLUMNS if name not in table.column_names]
        if missing:
            raise BadInput(f"{folder} has no column {', '.join(missing)}: run the stage preprocess again")
        return cls(folder, table)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labeled(self) -> bool:
        """Whether every row has a label."""
        return self._labels is not None

    @property
    def labels(self) -> Array:
        """Class ids (int64) or scores (float64), [rows], or zeros and ones (int64), [rows, labels]."""
        if self._labels is None:
            raise BadInput(f"{self.folder} has no labels")
        return self._labels

    def largest_id(self) -> int:
        """Return the largest token id of the split, or 0 if it has no rows."""
        return max((int(values.max()) for values in self._values if len(values)), default=0)

    def ids(self, index: int) -> Array:
        """Return the token ids of one row as a view of the mapped file."""
        start = self._start[index]
        row: Array = self._values[self._chunk[index]][start : start + self.lengths[index]]
        return row

    def sentences(self, indices: Array) -> list[tuple[str, ...]]:
        """Return the cleaned text of some documents' first rows, as tuples of one or two sentences."""
        return [tuple(column[int(index)].as_py() for column in self._texts) for index in indices]

    def windows(self, chosen: Array) -> Array:
        """Return the positions of all rows of some documents, which are given as ascending positions in `documents`."""
        inside = np.zeros(len(self.documents), bool)
        inside[chosen] = True
        return np.flatnonzero(np.repeat(inside, np.diff(self.documents, append=len(self))))

    def batch(self, indices: Array, length: int = 0) -> Batch:
        """Return a padded batch of the rows at some positions: see `padded`."""
        import torch

        ids, mask, segments = map(torch.from_numpy, self.padded(indices, length))
        labels = torch.empty(0) if self._labels is None else label_tensor(self._labels[indices])
        return Batch(ids, mask, segments, labels)

    def padded(self, indices: Array, length: int = 0) -> tuple[Array, Array, Array]:
        """Return the input_ids, attention_mask and token_type_ids of a padded batch, as Batch describes them.

        Rows are padded to the longest one, or to `length` tokens if that is more.
        """
        lengths = self.lengths[indices, None]
        positions = np.arange(max(length, lengths.max()))
        mask = positions < lengths
        input_ids = np.zeros(mask.shape, np.int64)
        input_ids[mask] = np.concatenate([self.ids(index) for index in indices])
        second = mask & (positions >= self._first[indices, None])
        return input_ids, mask.astype(np.int64), second.astype(np.int64)


def label_tensor(labels: Array) -> torch.Tensor:
    """Return labels as Batch has them."""
    import torch

    found = torch.from_numpy(labels)
    return found.float() if found.ndim > 1 or found.is_floating_point() else found


def send(part: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device. A GPU fetches it from pinned memory, so that Python does not wait for it."""
    if device.type == "cuda" and part.device.type == "cpu":
        part = part.pin_memory()
    return part.to(device, non_blocking=True)


def length_batches(
    lengths: Array,
    *,
    batch_size: int | None = None,
    batch_tokens: int | None = None,
    padded: Callable[[int], int] | None = None,
) -> list[Array]:
    """Divide rows of these lengths in tokens, [rows], into batches of similar length, and return their positions.

    The longest rows come first, so that a lack of memory shows at once.

    Args:
        lengths: numbers of tokens, [rows].
        batch_size: number of rows per batch, if not batch_tokens.
        batch_tokens: maximum number of tokens per batch, including padding. A longer row gets a batch of its own.
        padded: with batch_tokens, to which length rows of a length are padded, if not to that of the longest row. The
            number of rows is then a multiple of eight, or less than eight, so that batches have few different shapes.
    """
    assert (batch_size is None) != (batch_tokens is None)
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    batches, start = [], 0
    while start < len(order):
        rows = batch_size or _rows_in(batch_tokens, int(lengths[order[start]]), padded)  # type: ignore[arg-type]
        batches.append(order[start : start + rows])
        start += rows
    return batches


def _rows_in(batch_tokens: int, tokens: int, padded: Callable[[int], int] | None) -> int:
    if padded is None:
        return max(1, batch_tokens // tokens)
    rows = max(1, batch_tokens // padded(tokens))
    return rows - rows % 8 if rows > 8 else rows
