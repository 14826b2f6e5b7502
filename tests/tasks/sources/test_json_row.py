"""Rows that are JSON objects."""

from __future__ import annotations

from tasks.sources.json_row import parse


def test_no_depth_of_nesting_stops_the_reader() -> None:
    for depth in range(900, 1000):  # at one of them, a row can be read, but not written
        row = '{"text": "\\ud83d\\ude00", "deep": ' + "[" * depth + "]" * depth + "}"
        assert parse(row.encode())[1] in ("", "not a JSON object")


def test_an_object_with_two_values_for_a_key_is_no_row() -> None:
    """Python would take the last one, and the other would be lost."""
    for row in (b'{"text": "good", "text": "bad"}', b'{"text": "good", "more": [{"a": 1, "a": 1}]}'):
        assert parse(row) == ({}, "an object has the same key twice")
    assert parse(b' {"text": "good", "more": {"text": 1}}\n') == ({"text": "good", "more": {"text": 1}}, "")


def test_a_number_that_no_double_holds_is_text() -> None:
    assert parse(b'{"large": [1e400, -1e400], "small": 1.5, "whole": 1}')[0] == {
        "large": ["1e400", "-1e400"], "small": 1.5, "whole": 1,
    }  # fmt: skip
