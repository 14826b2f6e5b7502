"""A topic of Kafka: where its partitions begin and end, and the messages between two offsets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from pyspark.sql.datasource import InputPartition

from include.folders import check_file
from include.secrets import KAFKA, KAFKA_VARIABLE, VARIABLE
from include.stages import BadInput, StageError, Transient

T = TypeVar("T")
#: Offsets by the number of the partition, as JSON writes them.
Offsets = dict[str, int]
#: How long brokers may be silent, in seconds: a broker's restart and the election of a leader take less.
PATIENCE = 60
#: What stays wrong until someone changes the topic, its name or the rights of the login.
_REFUSED = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)
_ANEW = "choose another streaming.name, under which the stream begins anew"
_SETTINGS = {
    # Spark's checkpoint says what was read: the group is no more than a name, which a consumer must have.
    "enable.auto.commit": False,
    "allow.auto.create.topics": False,
    # A transaction that was aborted, or is still open, is not read.
    "isolation.level": "read_committed",
    # Messages that are gone are an error, and nothing to be skipped.
    "auto.offset.reset": "error",
    # A partition may end with offsets that hold no message: then only this event says that there is no more.
    "enable.partition.eof": True,
    # What a task reads ahead, in KiB. By default it is 64 MiB, which every core would have.
    "queued.max.messages.kbytes": 16 * 1024,
    # The reason for a silence is part of our error. Without this, each refused connection would be logged.
    "log_level": 2,
}


@dataclass(frozen=True)
class Range(InputPartition):
    """The messages of a partition from one offset to before another."""

    partition: int
    start: int
    end: int


class Topic:
    """A topic that is open for reading. Close it when it is no longer needed."""

    def __init__(self, brokers: str, name: str) -> None:
        """Prepare the connection to brokers ("host:port,host:port"), which is made when it is first needed."""
        self._brokers, self._name = brokers, name
        self._reason = ""
        self._consumer = self._connect()

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()

    def partitions(self) -> list[str]:
        """Return the numbers of the partitions that the topic has now."""

        def ask(timeout: float) -> list[str]:
            found = self._consumer.list_topics(self._name, timeout).topics[self._name]
            if found.error is None:
                return [str(number) for number in sorted(found.partitions)]
            if found.error.code() not in _REFUSED:
                raise KafkaException(found.error)
            raise BadInput(
                f"the brokers {self._brokers} refuse the topic {self._name} ({found.error.str()}): create it, correct "
                "streaming.topic, or give the login the right to read it"
            )

        return self._answer(ask)

    def offsets(self, partitions: Iterable[str], which: int) -> Offsets:
        """Return OFFSET_BEGINNING of each partition, or OFFSET_END, which open transactions hold back."""
        asked = [TopicPartition(self._name, int(number), which) for number in partitions]

        def ask(timeout: float) -> Offsets:
            found = self._consumer.offsets_for_times(asked, timeout)
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
            return {str(each.partition): each.offset for each in found}

        return self._answer(ask)

    def messages(self, part: Range) -> Iterator[Message]:
        """Yield the messages of a range, which may have fewer messages than offsets."""
        self._consumer.assign([TopicPartition(self._name, part.partition, part.start)])
        position, deadline = part.start, time.monotonic() + PATIENCE
        while position < part.end:
            message = self._consumer.poll(1)
            error = None if message is None else message.error()
            code = None if error is None else error.code()
            if message is not None and error is None:
                position = _offset(message) + 1
                if position <= part.end:
                    yield message
                deadline = time.monotonic() + PATIENCE  # what Spark does with a message takes no patience
            elif message is not None and code == KafkaError._PARTITION_EOF:
                position = max(position, _offset(message))
            else:
                self._remember(error)
                if code == KafkaError._AUTO_OFFSET_RESET or time.monotonic() > deadline:
                    raise self._refusal(part, position)

    def _connect(self) -> Consumer:
        file = properties_file()
        given = read_properties(file) if file else {}
        ours = _SETTINGS | {"bootstrap.servers": self._brokers, "error_cb": self._remember}
        try:
            return Consumer({"group.id": "spark-bert"} | given | ours)
        except KafkaException as error:
            text = error.args[0].str()
            for value in filter(None, given.values()):  # librdkafka shows values that it does not like
                text = text.replace(value, "...")
            raise BadInput(f"{file or self._brokers}: {text}: correct the property") from None

    def _remember(self, error: KafkaError | None) -> None:
        if error is not None and error.code() != KafkaError._ALL_BROKERS_DOWN:  # another error says why they are down
            self._reason = error.str()

    def _answer(self, ask: Callable[[float], T]) -> T:
        """Return the brokers' answer. While they start again, or elect a leader, they are asked again."""
        self._consumer.poll(0)  # calls _remember with what is known from before
        self._reason, deadline = "", time.monotonic() + PATIENCE
        while True:
            try:
                return ask(max(deadline - time.monotonic(), 1))
            except KafkaException as error:
                if time.monotonic() < deadline:
                    time.sleep(0.5)
                    continue
                self._consumer.poll(0)
                raise Transient(
                    f"the brokers {self._brokers} do not answer ({self._reason or error.args[0].str()}): check that "
                    "they run, streaming.brokers, the network, and the login, and start the stream again"
                ) from error

    def _refusal(self, part: Range, position: int) -> StageError:
        place, reason = f"{self._name}-{part.partition}", self._reason or f"nothing came for {PATIENCE} seconds"
        self.partitions()  # says so if the topic is gone
        asked = TopicPartition(self._name, part.partition)
        low, high = self._answer(lambda timeout: self._consumer.get_watermark_offsets(asked, timeout))
        if position < low:
            return BadInput(
                f"{place}: the messages from offset {position} to {low - 1} were deleted before the stream read them: "
                f"raise the topic's retention.ms, or run the stream more often; to go on without them, {_ANEW}"
            )
        if part.end > high:
            return made_anew(place, high, part.end)
        return Transient(
            f"{place}: the messages from offset {position} to {part.end - 1} cannot be read at present ({reason}): "
            "start the stream again"
        )


def properties_file() -> Path | None:
    """Return `kafka.properties` of the secret files, or the file that the variable names; None if neither exists."""
    folder, named = os.environ.get(VARIABLE), os.environ.get(KAFKA_VARIABLE)
    if folder and Path(folder, KAFKA).is_file():
        return Path(folder, KAFKA)
    if not named:
        return None
    check_file(Path(named), f"correct {KAFKA_VARIABLE}, or unset it if the brokers want neither TLS nor a login")
    return Path(named)


def read_properties(file: Path) -> dict[str, str]:
    """Read librdkafka's properties for TLS and the login: lines as `sasl.username=reader`, and comments (#)."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(f"{file} cannot be read: give the user that runs the stages read access") from error
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text: write lines as KEY=VALUE into it") from None
    found = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():  # the line is not shown: it may hold a password
            raise BadInput(
                f"{file}, line {number} is not KEY=VALUE: write a property of librdkafka, or remove the line"
            )
        found[key.strip()] = value.strip()
    return found


def made_anew(place: str, end: int, known: int) -> BadInput:
    """Return the refusal of a partition, as "reviews-3", that ends before the offset up to which it is known."""
    return BadInput(
        f"{place} ends at offset {end}, but the stream knows it up to {known}: the topic was deleted and made anew, or "
        f"brokers have lost messages: {_ANEW}"
    )


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None  # only messages that were never sent have none
    return offset
