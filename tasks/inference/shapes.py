"""The shapes of batches. This file is saved with packages, so it imports nothing of the project.

A library that compiles a model for the shape of its input, such as OpenVINO, takes tens of milliseconds for the first
batch of every shape. So there must not be too many shapes.
"""

from __future__ import annotations

#: Lengths are multiples of STEP, and so are numbers of rows from STEP on; smaller numbers of rows are powers of two.
STEP = 8


def few_lengths(tokens: int, longest: int) -> int:
    """Return the length to which a batch is padded: the next multiple of STEP, but no more than `longest` tokens."""
    return max(tokens, min(longest, -(-tokens // STEP) * STEP))


def few_rows(rows: int) -> int:
    """Return the number of rows to which a batch is padded."""
    return 1 << (rows - 1).bit_length() if rows < STEP else -(-rows // STEP) * STEP
