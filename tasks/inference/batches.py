"""The batches in which a model computes the rows of a table."""

from __future__ import annotations

import numpy as np

from include.sections import Prediction
from tasks.encoder.batching import ROWS_OF_LONGER, TIERS, Array, length_batches
from tasks.inference.shapes import padded_length

#: The number of rows in a static batch.
STATIC_ROWS = 32


def tier(mean_length: float) -> int:
    """Return the number of rows per batch for rows of this mean length in tokens."""
    return next((rows for longest, rows in TIERS if mean_length <= longest), ROWS_OF_LONGER)


def batches(lengths: Array, prediction: Prediction) -> list[Array]:
    """Divide rows into batches, which have rows of similar lengths unless they are static.

    Args:
        lengths: The lengths of the rows in tokens, [n].
        prediction: The experiment's prediction section, which determines the size of the batches.

    Returns:
        Positions in `lengths`, one array per batch.
    """
    if not len(lengths):
        return []
    if prediction.batching == "static":
        return list(np.array_split(np.arange(len(lengths)), range(STATIC_ROWS, len(lengths), STATIC_ROWS)))
    if prediction.batching == "tokens":
        return length_batches(lengths, batch_tokens=prediction.batch_tokens, padded=padded_length)
    return length_batches(lengths, batch_size=tier(float(lengths.mean())))
