"""How many rows the model takes at once."""

from __future__ import annotations

from include.sections import Prediction
from tasks.encoder.batching import ROWS_OF_LONGER, TIERS, Array, length_batches


def tier(mean_length: float) -> int:
    """Rows in a batch for a partition of this average length in tokens."""
    return next((rows for longest, rows in TIERS if mean_length <= longest), ROWS_OF_LONGER)


def batches(lengths: Array, prediction: Prediction) -> list[Array]:
    """A partition's positions, cut into batches of near-equal length as the experiment says."""
    if prediction.batching == "tokens":
        return length_batches(lengths, batch_tokens=prediction.batch_tokens)
    return length_batches(lengths, batch_size=tier(float(lengths.mean())))
