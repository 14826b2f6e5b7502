"""Long texts as windows. The file is copied into packages, so it imports nothing of the project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding

Array = npt.NDArray[Any]


def split(encodings: Sequence[Encoding], stride: int | None) -> tuple[list[Encoding], Array]:
    """Return the inputs of texts, and the position of the text of each, [inputs].

    They are all windows, those of a text next to one another, or without a stride the first of each text.
    """
    if stride is None:
        return list(encodings), np.arange(len(encodings))
    windows = [[encoding, *encoding.overflowing] for encoding in encodings]
    return [each for some in windows for each in some], np.repeat(np.arange(len(windows)), list(map(len, windows)))


def first_windows(rows: Array) -> Array:
    """Return the positions of the first windows of documents, [documents]: see `pool`."""
    return np.flatnonzero(np.diff(rows, prepend=rows[:1] - 1))


def pool(logits: Array, rows: Array) -> Array:
    """Return the mean logits, [documents, outputs], of windows, [windows, outputs], with the rows of their documents.

    For a linear head, it equals the logits of the mean of the representations of the windows (mean pooling in Sun et
    al. 2019, "How to fine-tune BERT for text classification?"). The mean of a single window is that window, to the bit.
    """
    first = first_windows(rows)
    if len(first) == len(rows):
        return logits
    counts = np.diff(first, append=len(rows)).astype(logits.dtype)
    pooled: Array = np.add.reduceat(logits, first) / counts[:, None]
    return pooled
