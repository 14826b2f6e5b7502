"""The shapes of batches. This file is saved with packages, so it imports nothing of the project.

A library that compiles a model for the shape of its input, such as OpenVINO, takes tens of milliseconds for the first
batch of every shape. So there must not be too many shapes.
"""

from __future__ import annotations

#: Short lengths are multiples of STEP, and so are numbers of rows from STEP on; smaller numbers are powers of two.
STEP = 8


def padded_length(tokens: int) -> int:
    """Return the length to which a batch is padded.

    From 64 tokens on, there are four lengths between a power of two and the next one: 80, 96, 112, 128, 160, ...
    """
    step = max(STEP, (1 << (tokens - 1).bit_length()) >> 3)
    return -(-tokens // step) * step


def padded_rows(rows: int) -> int:
    """Return the number of rows to which a batch is padded."""
    return 1 << (rows - 1).bit_length() if rows < STEP else -(-rows // STEP) * STEP
