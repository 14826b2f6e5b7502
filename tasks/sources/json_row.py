"""Rows that are JSON objects."""

from __future__ import annotations

import json
from typing import Any

from tasks.sources.chunks import decoding_problem


def parse(data: bytes) -> tuple[dict[str, Any], str]:
    """Return the values of a row by the names of their columns, or why it cannot be read."""
    if problem := decoding_problem(data):
        return {}, problem
    try:
        row = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        return {}, "not a JSON object"
    try:
        if b"\\ud" in data.lower() and _has_half_a_pair(row):
            return {}, "broken encoding: contains half of a surrogate pair"
    except RecursionError:  # writing needs a few levels more than reading
        return {}, "not a JSON object"
    return row, ""


def _has_half_a_pair(row: dict[str, Any]) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
