"""Rows that are JSON objects."""

from __future__ import annotations

from tasks.sources.json_row import parse


def test_no_depth_of_nesting_stops_the_reader() -> None:
    for depth in range(900, 1000):  # at one of them, a row can be read, but not written
        row = '{"text": "\\ud83d\\ude00", "deep": ' + "[" * depth + "]" * depth + "}"
        assert parse(row.encode())[1] in ("", "not a JSON object")
