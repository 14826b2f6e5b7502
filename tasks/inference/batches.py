"""The batches in which a model computes the rows of a table."""

from __future__ import annotations

import numpy as np

from include.sections import Prediction
from tasks.encoder.batching import ROWS_OF_LONGER, TIERS, Array, TokenTable, length_batches
from tasks.inference.backend import Backend

#: The number of rows in a static batch.
STATIC_ROWS = 32
#: Backends with fixed shapes get batches whose length is a multiple of this many tokens.
_BUCKET = 16


def tier(mean_length: float) -> int:
    """Return the number of rows per batch for rows of this mean length in tokens."""
    return next((rows for longest, rows in TIERS if mean_length <= longest), ROWS_OF_LONGER)


def batches(lengths: Array, prediction: Prediction, fixed_shapes: bool = False) -> list[Array]:
    """Divide rows into batches, which have rows of similar lengths unless they are static.

    Args:
        lengths: The lengths of the rows in tokens, [n].
        prediction: The experiment's prediction section, which determines the size of the batches.
        fixed_shapes: Whether all batches of a token budget but the last shall have a power of two of rows.

    Returns:
        Positions in `lengths`, one array per batch.
    """
    if not len(lengths):
        return []
    if prediction.batching == "static":
        return np.array_split(np.arange(len(lengths)), range(STATIC_ROWS, len(lengths), STATIC_ROWS))
    if prediction.batching == "tokens":
        return length_batches(lengths, batch_tokens=prediction.batch_tokens, powers_of_two=fixed_shapes)
    return length_batches(lengths, batch_size=tier(float(lengths.mean())))


def bucket(lengths: Array, longest: int) -> Array:
    """Round lengths up to those that batches of fixed shapes have, but not above `longest`. All are in tokens, [n]."""
    rounded: Array = np.minimum(-(-lengths // _BUCKET) * _BUCKET, np.maximum(lengths, longest))
    return rounded


def compute(backend: Backend, table: TokenTable, indices: Array, longest: int) -> Array:
    """Compute some rows of a table as one batch.

    Args:
        backend: The model.
        table: The table that holds the rows.
        indices: The positions of the rows in the table, [n].
        longest: The maximum length of an input in tokens.

    Returns:
        Logits, float32 [n, outputs].
    """
    if not backend.fixed_shapes:
        return backend.logits(*table.padded(indices))
    rows = 1 << (len(indices) - 1).bit_length()
    filled = np.resize(indices, rows)  # repeats rows until there are enough
    length = int(bucket(table.lengths[indices], longest).max())
    return backend.logits(*table.padded(filled, length))[: len(indices)]
