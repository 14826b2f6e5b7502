"""What a model costs whoever serves it: milliseconds for a row, and megabytes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from include.sections import Retraining
from tasks.encoder.inference import batch_logits
from tasks.stages.challenge.contender import Contender

ROWS, WARM_UP = 100, 10


@dataclass(frozen=True)
class Cost:
    """One cost of both models, and the budget for it.

    Attributes:
        name: latency or size.
        unit: ms or MB (10^6 bytes).
        model: the new model's.
        champion: the champion's; None without one.
        budget: the most that the new model may take; None: any.
        reason: why it is too much; "" when it is not.
    """

    name: str
    unit: str
    model: float
    champion: float | None
    budget: float | None
    reason: str


def costs(contenders: Mapping[str, Contender], options: Retraining) -> list[Cost]:
    """Latency and size of the contenders "model" and, where there is one, "champion"."""
    sizes = {name: megabytes(contender.folder) for name, contender in contenders.items()}
    return [
        _cost("latency", "ms", milliseconds(contenders), options.max_latency),
        _cost("size", "MB", sizes, options.max_size),
    ]


def milliseconds(contenders: Mapping[str, Contender]) -> dict[str, float]:
    """Median time from token ids to logits of a row by itself, on one thread of the CPU.

    One thread, because that compares between machines and is least disturbed by what else this one does; more threads
    are faster. For the same reason the contenders take turns at every row. Rows are evenly spread over the dev split.
    """
    rows = len(next(iter(contenders.values())).table)
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    with _one_thread():
        for place, row in enumerate(np.resize(np.linspace(0, rows - 1, min(rows, ROWS)).astype(int), WARM_UP + ROWS)):
            for name, contender in contenders.items():
                started = time.perf_counter()
                batch_logits(contender.classifier, contender.table, np.array([row]))
                if place >= WARM_UP:
                    taken[name].append(1000 * (time.perf_counter() - started))
    return {name: statistics.median(times) for name, times in taken.items()}


def megabytes(folder: Path) -> float:
    """Size of the files below a folder, in 10^6 bytes."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def _cost(name: str, unit: str, values: Mapping[str, float], most: float) -> Cost:
    value, budget = values["model"], most or None
    over = budget is not None and value > budget
    reason = f"{name} {value:.2f} {unit} is more than retraining.max_{name} = {most:g} {unit}" if over else ""
    return Cost(name, unit, value, values.get("champion"), budget, reason)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
