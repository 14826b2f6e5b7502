"""The source for Kafka on librdkafka's mock brokers: every message once, and nothing skipped in silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from include.secrets import KAFKA, KAFKA_VARIABLE, VARIABLE
from include.stages import BadInput, Transient
from tasks.spark import _explain
from tasks.streaming import kafka_topic
from tasks.streaming.kafka import KafkaReader, KafkaSource, divide
from tasks.streaming.kafka_topic import Offsets, Topic, read_properties
from tasks.streaming.rows import ARROW
from tests.tasks.streaming.brokers import Brokers
from tests.tasks.streaming.relay import Relay

ALL = ReadAllAvailable()
TOPIC = "reviews"
Batch = tuple[int, list[Row]]


@contextmanager
def opened(brokers: Brokers, starting: str = "earliest") -> Iterator[KafkaReader]:
    reader = KafkaReader({"brokers": brokers.addresses, "topic": TOPIC, "rows": "10", "starting": starting})
    try:
        yield reader
    finally:
        reader.stop()


def read(source: KafkaReader, start: Offsets, end: Offsets) -> list[dict[str, Any]]:
    batches = [batch for part in source.partitions(start, end) for batch in source.read(part)]
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, ARROW).to_pylist()
    return rows


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b'{"text": "film %d"}' % number for number in range(first, first + count)]


@contextmanager
def written(brokers: Brokers) -> Iterator[None]:
    """Keep on writing to partition 0, faster than small batches are read."""
    done = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": brokers.addresses})
        while not done.wait(0.1):
            for value in numbered(5):
                producer.produce(TOPIC, value, partition=0)
            producer.flush(10)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def run(spark: SparkSession, brokers: Brokers, checkpoint: Path, rows: int, keep: Callable[[Batch], None]) -> None:
    """Run the stream to the messages that are there, and pass each batch on."""
    options = {"brokers": brokers.addresses, "topic": TOPIC, "rows": str(rows), "starting": "earliest"}
    spark.dataSource.register(KafkaSource)
    stream = spark.readStream.format(KafkaSource.name()).options(**options).load()
    writer = stream.writeStream.foreachBatch(lambda batch, number: keep((number, batch.collect())))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()


def test_a_stream_reads_every_message_once_whatever_happens(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    brokers.make(TOPIC, 3)
    brokers.write(TOPIC, 0, numbered(30))
    brokers.write(TOPIC, 1, [None, b"caf\xe9", "café".encode()])
    brokers.transact(TOPIC, 1, [b"{}"])
    small: list[Batch] = []
    with ExitStack() as meanwhile:

        def keep(batch: Batch) -> None:
            if not small:
                meanwhile.enter_context(written(brokers))
            small.append(batch)

        run(spark, brokers, tmp_path, 20, keep)
    # The first batch writes down where the stream begins. The transaction has ended with an offset without a message.
    assert [len(rows) for _, rows in small] == [0, 20 - 1, 15]

    failed: list[Batch] = []

    def fail(batch: Batch) -> None:
        failed.append(batch)
        brokers.write(TOPIC, 2, numbered(5))
        raise RuntimeError("the disk is full")

    with pytest.raises(StreamingQueryException, match="the disk is full"):
        run(spark, brokers, tmp_path, 10_000, fail)
    rest: list[Batch] = []
    run(spark, brokers, tmp_path, 10_000, rest.append)
    assert rest[0] == failed[0] and len(rest) == 2
    assert [number for number, _ in small + rest] == list(range(len(small + rest)))

    found: dict[str, list[Row]] = {}
    for row in (row for _, rows in small + rest for row in rows):
        found.setdefault(row.source, []).append(row)
    positions = {source: [row.position for row in rows] for source, rows in found.items()}
    assert positions.pop("reviews-0") == list(range(len(found["reviews-0"]))) and len(found["reviews-0"]) > 30
    assert positions == {"reviews-1": [0, 1, 2, 3], "reviews-2": [0, 1, 2, 3, 4]}
    assert [(row.row, row.problem) for row in found["reviews-1"]] == [
        (None, "no value (a tombstone)"),
        (None, "broken encoding: byte 0xe9 is not UTF-8"),
        ("café", None),
        ("{}", None),
    ]
    assert abs(found["reviews-1"][0].time - datetime.now()) < timedelta(minutes=10)


@pytest.mark.parametrize("when", ["planned", "read"])
def test_a_refusal_of_the_source_is_the_stages(
    when: str, spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    if when == "read":
        brokers.make(TOPIC, 1)
        brokers.write(TOPIC, 0, numbered(5))

    def keep(batch: Batch) -> None:
        brokers.delete_before(TOPIC, 0, 3)  # after the batch that says where the stream begins

    with pytest.raises(StreamingQueryException) as error:
        run(spark, brokers, tmp_path, 10, keep)
    refused = _explain(error.value)
    assert isinstance(refused, BadInput)
    says = {"planned": "refuse the topic reviews", "read": "reviews-0: the messages from offset 0 to 2 were deleted"}
    assert says[when] in str(refused)


def test_a_partition_that_is_new_is_read_from_its_beginning(brokers: Brokers) -> None:
    brokers.make(TOPIC, 2)
    for partition in (0, 1):
        brokers.write(TOPIC, partition, numbered(3))
    with opened(brokers) as source:
        source.prepareForTriggerAvailableNow()
        end = source.latestOffset({"0": 2}, ALL)
        assert end == {"0": 3, "1": 3}
        rows = read(source, {"0": 2}, end)
    assert [(row["source"], row["position"]) for row in rows] == [
        ("reviews-0", 2),
        ("reviews-1", 0),
        ("reviews-1", 1),
        ("reviews-1", 2),
    ]


@pytest.mark.parametrize(("starting", "begin"), [("earliest", 2), ("latest", 5)])
def test_where_a_new_stream_begins(starting: str, begin: int, brokers: Brokers) -> None:
    brokers.make(TOPIC, 1)
    brokers.write(TOPIC, 0, numbered(5))
    brokers.delete_before(TOPIC, 0, 2)
    with opened(brokers, starting) as source:
        new = source.initialOffset()
        start = source.latestOffset(new, source.getDefaultReadLimit())
        assert start == {"0": begin}
        assert source.partitions(new, start) == []
        brokers.write(TOPIC, 0, numbered(20))
        assert source.latestOffset(start, source.getDefaultReadLimit()) == {"0": begin + 10}
        assert source.reportLatestOffset() == {"0": 25}
        assert source.latestOffset({"0": 25}, ALL) == {"0": 25}


def test_what_comes_later_is_for_the_next_run(brokers: Brokers) -> None:
    brokers.make(TOPIC, 1)
    brokers.write(TOPIC, 0, numbered(5))
    with opened(brokers, "latest") as source:
        source.prepareForTriggerAvailableNow()
        brokers.write(TOPIC, 0, numbered(5))
        assert source.latestOffset({}, ALL) == {"0": 5} == source.latestOffset({"0": 5}, ALL)


def test_rows_are_divided_evenly_and_nobody_waits_for_good() -> None:
    assert divide(10, {"0": 100, "1": 2, "2": 100}) == {"0": 4, "1": 2, "2": 4}
    assert divide(10, {"0": 1, "1": 2}) == {"0": 1, "1": 2}
    assert divide(1, {"0": 4, "1": 5, "2": 4}) == {"0": 0, "1": 1, "2": 0}
    assert divide(10, {}) == {}


def test_aborted_transactions_are_left_out_and_a_range_may_end_with_them(brokers: Brokers) -> None:
    brokers.make(TOPIC, 1)
    brokers.write(TOPIC, 0, numbered(3))
    brokers.transact(TOPIC, 0, [b"aborted", b"aborted"], commit=False)
    brokers.transact(TOPIC, 0, [b"committed"])
    brokers.transact(TOPIC, 0, [b"aborted"], commit=False)
    relay = Relay(int(brokers.addresses.split(":")[1]), [range(3, 5), range(8, 9)])
    brokers.behind(relay.port)
    with opened(brokers) as source:
        end = source.latestOffset({"0": 1}, ALL)
        assert end == {"0": 10}
        assert [row["row"] for row in read(source, {"0": 1}, end)] == [*map(bytes.decode, numbered(2, 1)), "committed"]
        assert read(source, {"0": 3}, {"0": 6}) == [] == read(source, {"0": 8}, end)
    relay.close()


def test_messages_that_are_gone_are_never_skipped(brokers: Brokers) -> None:
    brokers.make(TOPIC, 1)
    brokers.write(TOPIC, 0, numbered(9))
    brokers.delete_before(TOPIC, 0, 5)
    with opened(brokers) as source:
        with pytest.raises(BadInput, match=r"^reviews-0: the messages from offset 2 to 4 were deleted .*retention"):
            read(source, {"0": 2}, {"0": 9})
        assert len(read(source, {"0": 5}, {"0": 9})) == 4


def test_a_topic_that_was_made_anew_is_refused(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topic, "PATIENCE", 1)
    brokers.make(TOPIC, 1)
    brokers.write(TOPIC, 0, numbered(3))
    with opened(brokers) as source:
        with pytest.raises(BadInput, match=r"^reviews-0 ends at offset 3, but the stream knows it up to 7: the topic"):
            source.latestOffset({"0": 7}, ALL)
        with pytest.raises(BadInput, match=r"^reviews-1 ends at offset 0, but the stream knows it up to 7"):
            source.latestOffset({"0": 3, "1": 7}, ALL)
        with pytest.raises(BadInput, match=r"^reviews-0 ends at offset 3, but the stream knows it up to 9"):
            read(source, {"0": 7}, {"0": 9})
        with pytest.raises(BadInput, match=r"^reviews-0 ends at offset 3, but the stream knows it up to 9"):
            read(source, {"0": 1}, {"0": 9})


def test_a_missing_topic_is_refused_and_not_made(brokers: Brokers) -> None:
    with opened(brokers) as source:
        for _ in range(2):
            with pytest.raises(BadInput, match=r"refuse the topic reviews \(.*Unknown topic.*\): create it"):
                source.latestOffset({}, ALL)


def test_brokers_that_do_not_answer(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topic, "PATIENCE", 1)
    brokers.make(TOPIC, 1)
    brokers.write(TOPIC, 0, numbered(3))
    with opened(brokers) as source:
        end = source.latestOffset({"0": 0}, ALL)
        brokers.down()
        says = rf"^the brokers {brokers.addresses} do not answer \(.*Connection refused.*\): check that they run"
        with pytest.raises(Transient, match=says):
            source.latestOffset({"0": 0}, ALL)
        with pytest.raises(Transient, match=says):
            read(source, {"0": 0}, end)


def test_the_election_of_a_leader_is_waited_for(brokers: Brokers) -> None:
    brokers.make(TOPIC, 1)
    brokers.write(TOPIC, 0, numbered(3))
    with opened(brokers) as source:
        for act in (lambda: source.latestOffset({"0": 0}, ALL), lambda: read(source, {"0": 0}, {"0": 3})):
            brokers.lead(TOPIC, 0, -1)
            election = threading.Timer(0.3, brokers.lead, (TOPIC, 0, 1))
            election.start()
            assert len(act()) in (1, 3)
            election.join()


@pytest.mark.parametrize("place", ["folder", "variable"])
def test_properties_are_those_of_the_deployment_and_never_shown(
    place: str, brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_topic, "PATIENCE", 1)
    file = tmp_path / KAFKA
    file.write_text(
        "# how to reach the brokers\n\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=ada\nsasl.password=correct=horse\n"
    )
    monkeypatch.setenv(*((VARIABLE, str(tmp_path)) if place == "folder" else (KAFKA_VARIABLE, str(file))))
    assert read_properties(file)["sasl.password"] == "correct=horse"
    with opened(brokers) as source, pytest.raises(Transient, match="SASL") as error:
        source.latestOffset({}, ALL)
    assert "horse" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("security.protocol=SSL\nsasl.password: geheim\n", r"kafka\.properties, line 2 is not KEY=VALUE"),
        ("=geheim\n", r"kafka\.properties, line 1 is not KEY=VALUE"),
        ("sasl.pasword=geheim\n", r'kafka\.properties: No such configuration property: "sasl\.pasword"'),
        ("security.protocol=geheim\n", r'kafka\.properties: Invalid value "\.\.\." for .*"security\.protocol"'),
        ("ssl.ca.location=/geheim\nsecurity.protocol=SSL\n", r"kafka\.properties: "),
    ],
)
def test_wrong_properties_are_refused_without_their_values(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / KAFKA).write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(BadInput, match=says) as error:
        Topic("127.0.0.1:1", TOPIC)
    assert "geheim" not in str(error.value)


def test_a_variable_that_names_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KAFKA_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(BadInput, match=r"none is missing: correct SPARK_BERT_KAFKA_PROPERTIES"):
        Topic("127.0.0.1:1", TOPIC)
