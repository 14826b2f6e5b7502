"""The batches in which the model predicts the rows of a partition."""

from __future__ import annotations

from include.sections import Prediction
from tasks.encoder.batching import ROWS_OF_LONGER, TIERS, Array, length_batches


def tier(mean_length: float) -> int:
    """Return the number of rows per batch for a partition with this mean length in tokens."""
    return next((rows for longest, rows in TIERS if mean_length <= longest), ROWS_OF_LONGER)


def batches(lengths: Array, prediction: Prediction) -> list[Array]:
    """Divide a partition into batches of rows with similar lengths.

    Args:
        lengths: The lengths of the rows in tokens, [n].
        prediction: The experiment's prediction section, which determines the size of the batches.

    Returns:
        Positions in `lengths`, one array per batch.
    """
    if prediction.batching == "tokens":
        return length_batches(lengths, batch_tokens=prediction.batch_tokens)
    return length_batches(lengths, batch_size=tier(float(lengths.mean())))
