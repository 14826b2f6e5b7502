"""How fast the forms are on one CPU thread of this machine, side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from include.sections import Prediction
from tasks.encoder.batching import Array, Batch, TokenTable
from tasks.inference.backend import Backend
from tasks.inference.batches import batches

#: Rows of the throughput, and how often each form computes them; rows of the latency.
ROWS, REPEATS, SINGLE_ROWS = 64, 5, 50


@dataclass(frozen=True)
class Speed:
    """The speed of a form on one CPU thread.

    Attributes:
        rows_per_second: the median over the repeats.
        lowest: the least rows per second of a repeat.
        highest: the most.
        times_torch: the median of the ratios to the reference's rows per second in the same repeat.
        p50: the median time of a single row, in milliseconds.
        p95: the time that 95 % of the single rows stay below, in milliseconds.
    """

    rows_per_second: float
    lowest: float
    highest: float
    times_torch: float
    p50: float
    p95: float

    def __str__(self) -> str:
        return f"{self.rows_per_second:.0f} rows/s ({self.times_torch:.2f} times PyTorch), {self.p50:.1f} ms a row"

    def as_json(self) -> dict[str, Any]:
        """Return the values with the digits that matter."""
        return {name: float(f"{value:.4g}") for name, value in asdict(self).items()}


def measure(backends: Mapping[str, Backend], reference: str, table: TokenTable) -> dict[str, Speed]:
    """Measure all forms.

    The batches are those of the stages predict and score, whose workers have one thread each. The forms take turns,
    with every pass over the rows and with every single row, so that other work on the machine slows all of them alike.
    Each has computed the same batches before, because some prepare themselves for a new shape.

    Args:
        backends: name of a form to the form, opened for one thread.
        reference: the name of the form that the others are compared with.
        table: the rows, of which some are used that are evenly spread over their lengths.

    Returns:
        Name of a form to its speed.
    """
    order = np.argsort(table.lengths, kind="stable")
    chosen = order[_spread(len(order), ROWS)]
    together = [table.batch(chosen[places]) for places in batches(table.lengths[chosen], Prediction())]
    single = [table.batch(order[[place]]) for place in _spread(len(order), SINGLE_ROWS)]
    seconds: dict[str, list[float]] = {name: [] for name in backends}
    latencies: dict[str, list[float]] = {name: [] for name in backends}
    for backend in backends.values():
        for batch in (*together, *single):
            _compute(backend, batch)
    for _ in range(REPEATS):
        for name, backend in backends.items():
            seconds[name].append(sum(_compute(backend, batch) for batch in together))
    for batch in single:
        for name, backend in backends.items():
            latencies[name].append(1000 * _compute(backend, batch))
    return {name: _speed(len(chosen), seconds[name], seconds[reference], latencies[name]) for name in backends}


def _spread(rows: int, wanted: int) -> Array:
    """Return positions that are evenly spread over the rows."""
    return np.linspace(0, rows - 1, min(rows, wanted)).astype(int)


def _compute(backend: Backend, batch: Batch) -> float:
    """Compute a batch, and return the seconds that it takes."""
    started = time.perf_counter()
    backend.logits(batch.input_ids.numpy(), batch.attention_mask.numpy(), batch.token_type_ids.numpy())
    return time.perf_counter() - started


def _speed(rows: int, seconds: list[float], reference: list[float], latencies: list[float]) -> Speed:
    rates = [rows / each for each in seconds]
    ratios = [other / own for own, other in zip(seconds, reference, strict=True)]
    return Speed(
        statistics.median(rates),
        min(rates),
        max(rates),
        statistics.median(ratios),
        float(np.percentile(latencies, 50)),
        float(np.percentile(latencies, 95)),
    )
