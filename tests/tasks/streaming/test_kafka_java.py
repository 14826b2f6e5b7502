"""Spark's own connector for Kafka, which no test has: what is done without it, and with the rows that it gives."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyspark.sql import SparkSession

from include.fields.labeling import Streaming
from include.stages import BadInput
from tasks.streaming.kafka import as_rows, open_topic
from tasks.streaming.rows import SCHEMA

#: The columns of the connector that are read.
MESSAGES = "value binary, topic string, partition int, offset bigint, timestamp timestamp"


def test_a_session_without_the_connector_is_told_how_to_add_it(spark: SparkSession) -> None:
    streaming = Streaming(source="kafka-java", brokers="here:9092", topic="reviews")
    with pytest.raises(
        BadInput, match=r"no connector: name org.apache.spark:spark-sql-kafka-0-10_2.13:4\.\S+ as spark"
    ):
        open_topic(spark, streaming)


def test_messages_become_the_rows_of_a_stream(spark: SparkSession) -> None:
    time = datetime(2026, 1, 2, 3, 4, 5)
    values = ['{"text": "café"}'.encode(), None, "café".encode("latin-1")]
    messages = [(value, "reviews", 3, offset, time) for offset, value in enumerate(values, start=7)]
    rows = as_rows(spark.createDataFrame(messages, MESSAGES))
    assert rows.schema.simpleString() == spark.createDataFrame([], SCHEMA).schema.simpleString()
    assert [tuple(row) for row in rows.collect()] == [
        ("reviews-3", 7, time, '{"text": "café"}', None),
        ("reviews-3", 8, time, None, "no value (a tombstone)"),
        ("reviews-3", 9, time, None, "broken encoding: it is not UTF-8"),
    ]
