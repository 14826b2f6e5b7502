"""The drift windows of a stream, streams/NAME/windows/FIRST-LAST.json, as the stage stream and the Dags show them."""

from __future__ import annotations

from typing import Any


def in_short(window: dict[str, Any]) -> dict[str, Any]:
    """Return what a result, a notice or an event says of a window, given its file's content, or raise KeyError."""
    first, last = window["first"], window["last"]
    return {
        "window": f"batches {first} to {last}",
        "rows": window["rows"],
        "reasons": window["reasons"],
        "file": f"windows/{file_name(first, last)}",
    }


def file_name(first: int, last: int) -> str:
    """Return the name of the file of a window from one batch to another."""
    return f"{first}-{last}.json"
