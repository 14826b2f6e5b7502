"""Figures of trainings that differ only in their seeds, in words, and in tables of Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from tasks.scoring.intervals import over_seeds

DASH = "—"


def or_dash(value: float | None, write: Callable[[float], str]) -> str:
    """Format a value, or return a dash if it was not measured."""
    return DASH if value is None else write(value)


def in_bytes(count: float) -> str:
    """Format a number of bytes with about three digits, in decimal units (1 kB is 1000 bytes)."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean, or None if a value is missing, because means over fewer seeds could not be compared."""
    every = list(values)
    known = [value for value in every if value is not None]
    return fmean(known) if known and len(known) == len(every) else None


def metric_of(summaries: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return the mean of a metric, its 95 % interval, and what that is computed over: "seeds" or "dev rows".

    The interval is that of the mean over the seeds if they differ, and otherwise that of the first seed: a regression
    is the same with every seed, which says nothing of its precision. The summaries are evaluate's metrics.json of each.
    """
    values = [summary["metrics"].get(name) for summary in summaries]
    if len(set(values)) == 1:
        return {"metric": mean(values), "interval": summaries[0]["interval"], "interval_over": "dev rows"}
    interval = None if None in values else over_seeds(values)
    return {"metric": mean(values), "interval": interval, "interval_over": "seeds"}


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    whole = [titles, ["---"] * len(titles), *([plain(text) for text in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in whole]


def plain(text: str) -> str:
    """Escape characters with a meaning in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
