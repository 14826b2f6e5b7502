"""The formats of files with rows, which the ends of their names tell."""

from __future__ import annotations

from pathlib import Path


def format_of(file: Path) -> str:
    """Return the end of a file's name, such as ".csv", in lower case. JSON Lines are ".jsonl", also as ".ndjson"."""
    suffix = file.suffix.lower()
    return ".jsonl" if suffix == ".ndjson" else suffix
