"""The papers' cleaning rules as Spark SQL expressions, which run in the JVM and not in Python."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import Column
from pyspark.sql import functions as F

from include.sections import Cleaning

#: The rules in the order in which they apply. (?U) lets \w and \s match Unicode letters and spaces, as in Python.
RULES: dict[Cleaning, Callable[[Column], Column]] = {
    # A tag becomes a space, because "end.<br />Start" contains two words. Any other "<", as in "3 < 5", is text.
    "html": lambda text: F.regexp_replace(text, r"</?[A-Za-z!][^>]*>", " "),
    "punctuation": lambda text: F.regexp_replace(text, r"(?U)[^\w\s]", ""),
    "lowercase": F.lower,
    "whitespace": lambda text: F.regexp_replace(text, r"(?U)\s+", " "),
}


def clean(text: Column, rules: Collection[str]) -> Column:
    """Apply the rules to a text column, always in the order of RULES."""
    for name, rule in RULES.items():
        if name in rules:
            text = rule(text)
    return text
