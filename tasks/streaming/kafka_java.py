"""A topic of Kafka, read by Spark's own connector, a Java library that the deployment adds."""

from __future__ import annotations

from pyspark import __version__
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from include.sections import Streaming
from include.stages import BadInput
from tasks.streaming.kafka_properties import properties_file, read_properties
from tasks.streaming.rows import NO_VALUE

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{__version__}"


def open_topic(spark: SparkSession, streaming: Streaming) -> DataFrame:
    """Return the messages to come, in the columns of `tasks.streaming.rows`.

    Raises:
        BadInput: If the session has no connector, or if the deployment's file of properties is wrong.
    """
    file = properties_file()
    options = {f"kafka.{name}": value for name, value in (read_properties(file) if file else {}).items()} | {
        "kafka.bootstrap.servers": streaming.brokers,
        "kafka.isolation.level": "read_committed",  # a message of a transaction that was aborted is not read
        "subscribe": streaming.topic,
        "startingOffsets": streaming.starting,
        "maxOffsetsPerTrigger": str(streaming.batch_rows),
    }
    try:
        messages = spark.readStream.format("kafka").options(**options).load()
    except AnalysisException as error:
        if "Failed to find data source: kafka" not in str(error):
            raise
        raise BadInput(
            f"streaming.source is kafka-java, but Spark has no connector: name {CONNECTOR} as spark.jars.packages, or "
            "its files as spark.jars, in spark-defaults.conf in the folder SPARK_CONF_DIR, or write "
            "streaming.source=kafka, which needs neither"
        ) from None
    return as_rows(messages)


def as_rows(messages: DataFrame) -> DataFrame:
    """Return messages, in the connector's columns, in the columns of `tasks.streaming.rows`."""
    text = sql.col("value").cast("string")
    problem = sql.when(text.isNull(), NO_VALUE).when(~sql.is_valid_utf8(text), "broken encoding: it is not UTF-8")
    return messages.select(
        sql.concat_ws("-", "topic", "partition").alias("source"),
        sql.col("offset").alias("position"),
        sql.col("timestamp").alias("time"),
        sql.try_validate_utf8(text).alias("row"),
        problem.alias("problem"),
    )
