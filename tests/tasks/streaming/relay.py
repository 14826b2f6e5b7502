"""A relay before a mock broker, which adds to its answers what it leaves out: which transactions were aborted."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

FETCH, VERSION = 1, 4  # the request for messages, and its first version that asks for committed ones


class Relay:
    """Passes the connections of clients on to a broker until `close`.

    Attributes:
        port: The port of this machine that clients connect to.
    """

    def __init__(self, broker: int, aborted: list[range]) -> None:
        """Start to listen.

        Args:
            broker: The port of the broker.
            aborted: The offsets of the messages of each transaction that was aborted.
        """
        self._broker, self._aborted = broker, aborted
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._broker))
            asked: dict[int, int] = {}
            threading.Thread(target=self._ask, args=(client, server, asked), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client, asked), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, asked: dict[int, int]) -> None:
        for frame in _frames(client):
            request, _, number = struct.unpack_from(">hhi", frame)
            asked[number] = request
            _send(server, frame)
        server.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket, asked: dict[int, int]) -> None:
        for frame in _frames(server):
            (number,) = struct.unpack_from(">i", frame)
            _send(client, self._with_aborted(frame) if asked.pop(number) == FETCH else frame)
        client.close()

    def _with_aborted(self, frame: bytes) -> bytes:
        """Put the aborted transaction into an answer that has messages of it, for one partition of one topic."""
        (length,) = struct.unpack_from(">h", frame, 12)
        at = 14 + length + 4 + 4 + 2 + 8 + 8  # partitions, partition, error, high watermark, last stable offset
        none, size = struct.unpack_from(">ii", frame, at)
        assert none == 0, "the mock cluster tells of aborted transactions by now: remove the relay"
        first = struct.unpack_from(">q", frame, at + 8)[0] if size > 0 else -1
        aborted = next((each for each in self._aborted if first in each), None)
        if aborted is None:
            return frame
        producer = frame[at + 8 + 43 : at + 8 + 51]
        return frame[:at] + struct.pack(">i", 1) + producer + struct.pack(">q", aborted.start) + frame[at + 4 :]


def _frames(source: socket.socket) -> Iterator[bytes]:
    """Yield the messages of Kafka's protocol, each of which begins with its length."""
    with source.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", head)[0])


def _send(target: socket.socket, frame: bytes) -> None:
    target.sendall(struct.pack(">i", len(frame)) + frame)
