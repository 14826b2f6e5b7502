"""The cleaning rules on Spark give what they give in Python, whatever the text."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tasks.encoder.cleaning import RULES, clean
from tasks.stages.pipeline.preprocess.splits import cleaned

HOSTILE = ["", " ", "<p>A</p>\x00B\r\n", "\u0130STANBUL \u03a3\u03a3", "e\u0301\u200d\u2028!", "\U0001f600<br>\ufeff"]


def test_every_text_is_cleaned_as_in_python(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(text,) for text in HOSTILE], "text string").coalesce(1)
    found = rows.select(cleaned(F.col("text"), tuple(RULES)).alias("text"), F.col("text").alias("raw")).collect()
    assert {row["raw"]: row["text"] for row in found} == {text: clean(text, RULES) for text in HOSTILE}
