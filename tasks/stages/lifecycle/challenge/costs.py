"""The costs of serving a model: latency in milliseconds per text, and size in megabytes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from include.sections.retraining import Retraining
from tasks.inference.runner import Runner
from tasks.stages.lifecycle.challenge.models import ScoredModel

ROWS, WARM_UP = 100, 10


@dataclass(frozen=True)
class Cost:
    """One cost of the challenger ("model") and the champion, its budget, and the reason if it exceeds that."""

    name: str
    unit: str
    model: float
    champion: float | None
    budget: float | None
    reason: str


def costs(models: Mapping[str, ScoredModel], options: Retraining) -> list[Cost]:
    """Measure latency and size of "model" and "champion", and compare the model's with their budgets."""
    sizes = {
        name: sum(file.stat().st_size for file in scored.folder.rglob("*") if file.is_file()) / 1e6
        for name, scored in models.items()
    }
    return [
        _cost("latency", "ms", milliseconds(models), options.max_latency),
        _cost("size", "MB", sizes, options.max_size),
    ]


def milliseconds(models: Mapping[str, ScoredModel]) -> dict[str, float]:
    """Return the median time from token ids to logits for a single text, on one CPU thread, in the served forms.

    A single thread is least affected by other processes. So that all models are, they take turns with each text.
    """
    rows = len(next(iter(models.values())).table.documents)
    taken: dict[str, list[float]] = {name: [] for name in models}
    runners = {name: Runner(scored.folder, scored.served) for name, scored in models.items()}
    for place, row in enumerate(np.resize(np.linspace(0, rows - 1, min(rows, ROWS)).astype(int), WARM_UP + ROWS)):
        for name, scored in models.items():
            started = time.perf_counter()
            runners[name].documents(scored.table, np.array([row]))
            if place >= WARM_UP:
                taken[name].append(1000 * (time.perf_counter() - started))
    return {name: statistics.median(times) for name, times in taken.items()}


def _cost(name: str, unit: str, values: Mapping[str, float], most: float) -> Cost:
    value, budget = values["model"], most or None
    over = budget is not None and value > budget
    reason = f"{name} {value:.2f} {unit} is more than retraining.max_{name} = {most:g} {unit}" if over else ""
    return Cost(name, unit, value, values.get("champion"), budget, reason)
