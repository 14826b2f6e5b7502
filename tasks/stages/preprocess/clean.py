"""The papers' cleaning rules as Spark SQL expressions, so that they run in the JVM and never a row in Python."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import Column
from pyspark.sql import functions as F

from include.sections import Cleaning

#: In the order in which they apply. (?U) gives \w and \s the meaning that Python gives them: any script's letters.
RULES: dict[Cleaning, Callable[[Column], Column]] = {
    # A space, because "end.<br />Start" holds two words. What follows no "<" of a tag, as in "3 < 5", is text.
    "html": lambda text: F.regexp_replace(text, r"</?[A-Za-z!][^>]*>", " "),
    "punctuation": lambda text: F.regexp_replace(text, r"(?U)[^\w\s]", ""),
    "lowercase": F.lower,
    "whitespace": lambda text: F.regexp_replace(text, r"(?U)\s+", " "),
}


def clean(text: Column, rules: Collection[str]) -> Column:
    """The text with the rules applied, always in the order of RULES."""
    for name, rule in RULES.items():
        if name in rules:
            text = rule(text)
    return text
