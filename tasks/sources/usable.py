"""Which texts a model can label."""

from __future__ import annotations

from collections.abc import Sequence

from include.text import is_blank
from tasks.encoder.cleaning import clean
from tasks.sources.json_row import decoding_problem
from tasks.sources.lines import nul_problem


def text_problem(value: bytes | None, rules: Sequence[str]) -> str:
    """Return why a text cannot be labeled, or "".

    Args:
        value: The text; None if there is none.
        rules: The rules by which the model cleans texts.
    """
    if value is None:
        return "no text"
    if problem := decoding_problem(value):
        return problem
    text = value.decode("utf-8")
    if is_blank(text):
        return "empty text"
    return "empty text after cleaning" if rules and is_blank(clean(text, rules)) else nul_problem(text)
