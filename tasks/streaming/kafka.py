"""A topic of Kafka as a source of Spark's streams, without Java (KafkaSource) or by Spark's own connector (open_topic).

- Spark's checkpoint alone says what was read: a batch between two offsets of it always has the same rows, unless the
  topic was compacted, and nothing is committed to Kafka.
- The first batch of a new stream is empty. The checkpoint holds the ends of batches only, so it is this batch that
  writes down where the stream begins.
- A partition that is added to the topic later is read from offset 0.
- With the trigger availableNow, the stream ends at the messages that were there when it started.
- Messages that were deleted before they were read are an error. Nothing is ever skipped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing
from itertools import islice

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TIMESTAMP_NOT_AVAILABLE, Message
from pyspark import __version__
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from include.fields.labeling import Streaming
from include.stages import BadInput
from tasks.sources.text_files import decoding_problem
from tasks.streaming.kafka_topic import Offsets, Range, Topic, made_anew, properties_file, read_properties
from tasks.streaming.rows import ARROW, NO_VALUE, SCHEMA

_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{__version__}"
#: The largest number of rows that are given to Spark at once.
ROWS_IN_CHUNK = 2048


class KafkaSource(DataSource):
    """The source. A new stream is `starting` with the "earliest" message, or only with what comes later ("latest")."""

    @classmethod
    def name(cls) -> str:
        """Return the name under which Spark knows the source."""
        return "spark-bert-kafka"

    def schema(self) -> str:
        """Return the columns, which all sources of a stream have."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> KafkaReader:
        """Return what plans the batches on the driver, and reads them on the executors."""
        return KafkaReader(self.options)


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a stream, and reads them. An offset of the stream is the next offset of each partition."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._brokers, self._name = options["brokers"], options["topic"]
        self._rows, self._starting = int(options["rows"]), options["starting"]
        self._topic: Topic | None = None
        self._target: Offsets | None = None
        self._seen: Offsets | None = None

    def initialOffset(self) -> Offsets:
        """Return what stands for a stream that has not begun: no partition."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch."""
        return ReadMaxRows(self._rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where this run of the stream ends."""
        self._target = self._newest()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return where the batch that begins at `start` ends; if that is `start`, there is nothing to read."""
        newest = self._newest()
        if not start:
            return newest if self._starting == "latest" else self._open().offsets(newest, OFFSET_BEGINNING)
        for partition, known in start.items():
            if known > newest.get(partition, 0):
                raise made_anew(f"{self._name}-{partition}", newest.get(partition, 0), known)
        begin = {partition: start.get(partition, 0) for partition in newest}
        waiting = {partition: newest[partition] - begin[partition] for partition in newest}
        shares = divide(limit.max_rows, waiting) if isinstance(limit, ReadMaxRows) else waiting
        return {partition: begin[partition] + shares[partition] for partition in newest}

    def reportLatestOffset(self) -> Offsets | None:
        """Return where the topic ended when it was last asked: with the end of the batch, what the stream lags."""
        return self._seen

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[Range]:
        """Return what a batch reads; nothing if it is the first one, which only writes down where the stream begins."""
        ranges = [Range(int(partition), start.get(partition, 0), end[partition]) for partition in end if start]
        return [each for each in ranges if each.start < each.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range."""
        assert isinstance(partition, Range)
        with closing(Topic(self._brokers, self._name)) as topic:
            messages = topic.messages(partition)
            while some := list(islice(messages, ROWS_IN_CHUNK)):
                yield _rows(f"{self._name}-{partition.partition}", some)

    def stop(self) -> None:
        """End the driver's connection."""
        if self._topic is not None:
            self._topic.close()

    def _open(self) -> Topic:
        self._topic = self._topic or Topic(self._brokers, self._name)
        return self._topic

    def _newest(self) -> Offsets:
        """Return where this run of the stream has to end for now."""
        if self._target is not None:
            return self._target
        topic = self._open()
        self._seen = topic.offsets(topic.partitions(), OFFSET_END)
        return self._seen


def divide(rows: int, waiting: dict[str, int]) -> dict[str, int]:
    """Divide rows among partitions with waiting rows evenly; what one does not need or is left goes to others."""
    shares, left = {}, rows
    for served, partition in enumerate(sorted(waiting, key=waiting.__getitem__)):
        shares[partition] = min(waiting[partition], left // (len(waiting) - served))
        left -= shares[partition]
    return shares


def _rows(source: str, messages: Sequence[Message]) -> pa.RecordBatch:
    read = [_text(message.value()) for message in messages]
    times = [None if kind == TIMESTAMP_NOT_AVAILABLE else at for kind, at in (each.timestamp() for each in messages)]
    columns = [
        pa.array([source] * len(messages)),
        pa.array([message.offset() for message in messages]),
        pa.array(times, pa.timestamp("ms", "UTC")).cast(ARROW.field("time").type),
        pa.array([text for text, _ in read], pa.string()),
        pa.array([problem for _, problem in read], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def _text(value: bytes | None) -> tuple[str | None, str | None]:
    if value is None:
        return None, NO_VALUE
    problem = decoding_problem(value)
    return (None, problem) if problem else (value.decode(), None)


def open_topic(spark: SparkSession, streaming: Streaming) -> DataFrame:
    """Return the messages to come as Spark's own connector reads them, a Java library that the deployment adds."""
    file = properties_file()
    options = {f"kafka.{name}": value for name, value in (read_properties(file) if file else {}).items()} | {
        "kafka.bootstrap.servers": streaming.brokers,
        "kafka.isolation.level": "read_committed",  # a message of a transaction that was aborted is not read
        "subscribe": streaming.topic,
        "startingOffsets": streaming.starting,
        "maxOffsetsPerTrigger": str(streaming.batch_rows),
    }
    try:
        return as_rows(spark.readStream.format("kafka").options(**options).load())
    except AnalysisException as error:
        if "Failed to find data source: kafka" not in str(error):
            raise
        raise BadInput(
            f"streaming.source is kafka-java, but Spark has no connector: name {_CONNECTOR} as spark.jars.packages, or "
            "its files as spark.jars, in spark-defaults.conf in the folder SPARK_CONF_DIR, or write "
            "streaming.source=kafka, which needs neither"
        ) from None


def as_rows(messages: DataFrame) -> DataFrame:
    """Return messages, in the connector's columns, in the columns of a stream's rows."""
    text = sql.col("value").cast("string")
    problem = sql.when(text.isNull(), NO_VALUE).when(~sql.is_valid_utf8(text), "broken encoding: it is not UTF-8")
    return messages.select(
        sql.concat_ws("-", "topic", "partition").alias("source"),
        sql.col("offset").alias("position"),
        sql.col("timestamp").alias("time"),
        sql.try_validate_utf8(text).alias("row"),
        problem.alias("problem"),
    )
