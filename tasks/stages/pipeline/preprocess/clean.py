"""The cleaning rules on Spark: the functions of tasks/encoder/cleaning.py, applied to the Arrow batches of a column."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from tasks.encoder.cleaning import clean_all


def cleaned(text: Column, rules: Collection[str]) -> Column:
    """Apply the rules to a text column."""
    if not rules:
        return text

    def clean_batch(texts: pa.Array) -> pa.Array:
        return pa.array(clean_all(texts.to_pylist(), rules), pa.string())

    found: Column = arrow_udf(clean_batch, "string")(text)  # type: ignore[call-overload]  # hints say the kind of UDF
    return found
