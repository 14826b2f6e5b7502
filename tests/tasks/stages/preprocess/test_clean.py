"""The cleaning rules against strings made by hand."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tasks.stages.preprocess.clean import RULES, clean

ALL = tuple(RULES)


@pytest.mark.parametrize(
    ("rules", "text", "cleaned"),
    [
        ((), "  <b>As</b> it IS!  ", "  <b>As</b> it IS!  "),
        (("html",), "The end.<br /><br/>Start", "The end.  Start"),
        (("html",), '<a href="x">link</a><!-- note -->', " link  "),
        (("html",), "3 < 5 and 7 > 6", "3 < 5 and 7 > 6"),
        (("punctuation",), "it's: well_made, 10/10!", "its well_made 1010"),
        (("punctuation",), "café, naïve: 電影。", "café naïve 電影"),
        (("lowercase",), "The ÉCOLE", "the école"),
        (("whitespace",), "a \t\n b\u00a0\u2003c", "a b c"),
        (("whitespace", "lowercase", "punctuation", "html"), "A<br/>B,  C", "a b c"),
        (ALL, "<p>...</p>", " "),
    ],
)
def test_rules(spark: SparkSession, rules: tuple[str, ...], text: str, cleaned: str) -> None:
    rows = spark.createDataFrame([(text,)], "sentence1 string")
    assert rows.select(clean(F.col("sentence1"), rules)).collect()[0][0] == cleaned
