"""Brokers of librdkafka's own mock cluster, which speak Kafka's protocol on ports of this machine."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path

import confluent_kafka
from confluent_kafka import Producer

from tests.tasks.streaming.relay import FETCH, VERSION

_PRODUCER = 0  # the kind of client, rd_kafka_type_t


def _library() -> ctypes.CDLL:
    """Return the librdkafka that confluent_kafka has loaded. Its Python interface leaves most of the mock out."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class Brokers:
    """A cluster that lives until `close`. Topics are made and changed here; clients find it at `addresses`."""

    def __init__(self, count: int = 1) -> None:
        self._library = _library()
        reason = ctypes.create_string_buffer(512)
        settings = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._client = ctypes.c_void_p(self._library.rd_kafka_new(_PRODUCER, settings, reason, len(reason)))
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._client, count))
        self.addresses: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def make(self, topic: str, partitions: int) -> None:
        self._call("topic_create", topic.encode(), partitions, 1)

    def delete(self, topic: str) -> None:
        self._call("topic_delete", topic.encode())

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Remove the messages before an offset, as retention does."""
        self._call("partition_delete_records", topic.encode(), partition, ctypes.c_int64(offset))

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition; with -1, it has none."""
        self._call("partition_set_leader", topic.encode(), partition, broker)

    def down(self) -> None:
        """Close all connections, and accept no new ones."""
        self._call("broker_set_down", -1)

    def write(self, topic: str, partition: int, values: Iterable[bytes | None]) -> None:
        producer = Producer({"bootstrap.servers": self.addresses})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(10) == 0

    def transact(self, topic: str, partition: int, values: Iterable[bytes], commit: bool = True) -> None:
        """Write values in a transaction, which ends with an offset that has no message."""
        producer = Producer({"bootstrap.servers": self.addresses, "transactional.id": "tests"})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.flush(10)
        (producer.commit_transaction if commit else producer.abort_transaction)(10)

    def behind(self, port: int) -> None:
        """Send clients to another port of this machine, with requests for messages that `relay` understands."""
        self._call("set_apiversion", FETCH, VERSION, VERSION)
        self._call("broker_set_host_port", 1, b"127.0.0.1", port)

    def _call(self, name: str, *arguments: bytes | int | ctypes.c_int64) -> None:
        assert getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments) == 0, name
