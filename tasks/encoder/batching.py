"""Token ids out of memory-mapped Arrow files, and batches of near-equal length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from include.stages import BadInput
from tasks.encoder.packing import Packing

Array = npt.NDArray[Any]
#: The papers' tiers: longest average length in tokens, and the rows of a batch; for longer ones, ROWS_OF_LONGER.
TIERS = ((32, 128), (64, 64), (128, 32))
ROWS_OF_LONGER = 16
_COLUMNS = ("row", "label", "length", "first", "input_ids", "sentence1")


@dataclass(frozen=True)
class Batch:
    """A padded batch. Shapes: labels [batch], everything else [batch, longest row].

    Attributes:
        input_ids: token ids, int64. Padding is id 0: it is masked, so any id of the vocabulary would do.
        attention_mask: 1 where there is a token, int64.
        token_type_ids: 1 in the second segment, int64.
        labels: class ids (int64) or scores (float32); empty for a split without labels.
        packing: how the encoder leaves the padding out; None: it computes it.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor
    labels: torch.Tensor
    packing: Packing | None = None

    def packed(self) -> Batch:
        """The same batch, of which the encoder computes no padding."""
        return replace(self, packing=Packing.of(self.attention_mask))

    @property
    def places(self) -> int:
        """Tokens that the encoder computes, padding included."""
        return self.attention_mask.numel() if self.packing is None else len(self.packing.places)

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        parts = (self.input_ids, self.attention_mask, self.token_type_ids, self.labels)
        ids, mask, segments, labels = (part.to(device, non_blocking=True) for part in parts)
        return Batch(ids, mask, segments, labels, None if self.packing is None else self.packing.to(device))


class TokenTable:
    """One split of preprocess: its ids and sentences stay in the page cache, shared by all processes."""

    def __init__(self, folder: Path, table: pa.Table) -> None:
        self.folder = folder
        self.rows: Array = table["row"].to_numpy()
        self.lengths: Array = table["length"].to_numpy().astype(np.int64)
        self._first: Array = table["first"].to_numpy().astype(np.int64)
        self._labels: Array | None = None if table["label"].null_count else table["label"].to_numpy()
        self._texts = [table[name] for name in ("sentence1", "sentence2") if name in table.column_names]
        chunks = table["input_ids"].chunks
        self._values: list[Array] = [chunk.values.to_numpy(zero_copy_only=True) for chunk in chunks]
        self._chunk: Array = np.repeat(np.arange(len(chunks)), [len(chunk) for chunk in chunks])
        offsets = [chunk.offsets.to_numpy().astype(np.int64) for chunk in chunks]
        self._start: Array = np.concatenate([np.zeros(0, np.int64), *(offset[:-1] for offset in offsets)])
        sizes = np.concatenate([np.zeros(0, np.int64), *(np.diff(offset) for offset in offsets)])
        if not np.array_equal(sizes, self.lengths):
            raise BadInput(f"{folder}: the column length does not fit input_ids: run the stage preprocess again")

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Map the split's part-*.arrow files. Raises BadInput when they are missing, damaged or of another make."""
        parts = sorted(folder.glob("part-*.arrow"))
        if not parts:
            raise BadInput(f"{folder} holds no part-*.arrow: run the stage preprocess first")
        try:
            table = pa.concat_tables([pa.ipc.open_file(pa.memory_map(str(part))).read_all() for part in parts])
        except (pa.ArrowInvalid, OSError) as error:
            raise BadInput(f"{folder} holds a damaged Arrow file: run the stage preprocess again ({error})") from error
        missing = [name for name in _COLUMNS if name not in table.column_names]
        if missing:
            raise BadInput(f"{folder} has no column {', '.join(missing)}: run the stage preprocess again")
        return cls(folder, table)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labelled(self) -> bool:
        """Whether every row has a label."""
        return self._labels is not None

    @property
    def labels(self) -> Array:
        """Class ids (int64) or scores (float64), [rows]. Raises BadInput for a split without labels."""
        if self._labels is None:
            raise BadInput(f"{self.folder} has no labels")
        return self._labels

    def largest_id(self) -> int:
        """The largest token id of the split."""
        return max((int(values.max()) for values in self._values if len(values)), default=0)

    def ids(self, index: int) -> Array:
        """The token ids of one row, a view of the file's own bytes."""
        start = self._start[index]
        row: Array = self._values[self._chunk[index]][start : start + self.lengths[index]]
        return row

    def sentences(self, indices: Array) -> list[tuple[str, ...]]:
        """The cleaned text of some rows: one or two sentences each."""
        return [tuple(column[int(index)].as_py() for column in self._texts) for index in indices]

    def batch(self, indices: Array, length: int = 0) -> Batch:
        """The rows at these positions, padded to the longest of them, or further to a length in tokens."""
        lengths = self.lengths[indices, None]
        positions = np.arange(max(length, lengths.max()))
        mask = positions < lengths
        input_ids = np.zeros(mask.shape, np.int64)
        input_ids[mask] = np.concatenate([self.ids(index) for index in indices])
        second = mask & (positions >= self._first[indices, None])
        return Batch(
            torch.from_numpy(input_ids),
            torch.from_numpy(mask.astype(np.int64)),
            torch.from_numpy(second.astype(np.int64)),
            self._label_tensor(indices),
        )

    def _label_tensor(self, indices: Array) -> torch.Tensor:
        if self._labels is None:
            return torch.empty(0)
        labels = torch.from_numpy(self._labels[indices])
        return labels.float() if labels.is_floating_point() else labels


def length_batches(lengths: Array, *, batch_size: int | None = None, batch_tokens: int | None = None) -> list[Array]:
    """Positions cut into batches of near-equal length, longest first, so that a lack of memory shows at once.

    Give one of batch_size (rows) and batch_tokens (padded tokens; a longer row gets a batch of its own).
    """
    if (batch_size is None) == (batch_tokens is None):
        raise ValueError("give one of batch_size and batch_tokens")
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    batches, start = [], 0
    while start < len(order):
        rows = batch_size or max(1, batch_tokens // int(lengths[order[start]]))  # type: ignore[operator]
        batches.append(order[start : start + rows])
        start += rows
    return batches
