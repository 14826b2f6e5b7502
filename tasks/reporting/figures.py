"""Figures in words, the same in pages and in Markdown."""

from __future__ import annotations

from collections.abc import Callable

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
