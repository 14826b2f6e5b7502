"""Tables in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the header's first column is a name, the others are figures."""
    alignment = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, alignment, *rows))


def spread(values: Sequence[float], digits: int = 0) -> str:
    """The median, then lowest and highest; a single value stands alone."""
    median = f"{statistics.median(values):,.{digits}f}"
    if len(values) == 1:
        return median
    return f"{median} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
