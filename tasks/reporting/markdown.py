"""Tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    whole = [titles, ["---"] * len(titles), *([plain(text) for text in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in whole]


def plain(text: str) -> str:
    """Escape characters with a meaning in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
