"""Load on an HTTP server, from a process of its own: clients that wait for their answers, and clients that do not.

The connections are of HTTP/1.1, stay open if the server lets them, and carry one request at a time. The clients do
little else than to send bytes that are ready and to find the end of the answer, because they share the machine with the
server.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from multiprocessing.synchronize import Event
from typing import NamedTuple, cast

import uvloop

TIMEOUT = 60  # seconds: more than any of the servers takes for an answer


@dataclass(frozen=True)
class Target:
    """A server, and what is sent to it.

    Attributes:
        port: its port on the loopback.
        requests: whole requests, head and body, which take turns.
    """

    port: int
    requests: Sequence[bytes]

    @classmethod
    def of(cls, port: int, path: str, bodies: Sequence[bytes]) -> Target:
        """POST requests with these bodies of JSON."""
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        return cls(port, [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies])


class Reply(NamedTuple):
    """What became of a request.

    Attributes:
        row: its number among the requests of the target.
        intended: when it was to be sent, as time.perf_counter tells it, which is the same clock in all processes.
        late: by how many seconds later it was sent.
        seconds: from when it was to be sent to the end of the answer.
        status: the HTTP status; 0 if there was no answer.
        body: the answer, or why there was none.
    """

    row: int
    intended: float
    late: float
    seconds: float
    status: int
    body: bytes


class Generator:
    """A process that sends requests; a context manager.

    It is started afresh, rather than forked, and shares neither interpreter nor threads with the benchmark.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._pool = ProcessPoolExecutor(1, context, initializer=_share, initargs=(self._stop,))

    def __enter__(self) -> Generator:
        """Start the process."""
        self._pool.submit(int).result()
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self._pool.shutdown()

    def closed(self, target: Target, clients: int, seconds: float) -> list[Reply]:
        """Let clients each send a request as soon as the one before it is answered, for so many seconds."""
        return self._pool.submit(_run_closed, target, clients, seconds).result()

    def open(self, target: Target, rate: float, seconds: float) -> list[Reply]:
        """Send requests at random times (a Poisson process), so many a second on average, whatever the answers do."""
        return self.start(target, rate, seconds).result()

    def start(self, target: Target, rate: float, seconds: float) -> Future[list[Reply]]:
        """Do the same without waiting for the end, which `stop` can bring about earlier."""
        self._stop.clear()
        return self._pool.submit(_run_open, target, rate, seconds)

    def stop(self) -> None:
        """Send nothing more."""
        self._stop.set()


_stop: Event


def _share(stop: Event) -> None:
    """Remember what tells the process to stop, which a task of a pool cannot be given."""
    global _stop
    _stop = stop


def _run_closed(target: Target, clients: int, seconds: float) -> list[Reply]:
    return uvloop.run(_closed(target, clients, seconds))


def _run_open(target: Target, rate: float, seconds: float) -> list[Reply]:
    return uvloop.run(_open(target, rate, seconds))


async def _closed(target: Target, clients: int, seconds: float) -> list[Reply]:
    sender = _Sender(target)
    end = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < end:
            await sender.send(time.perf_counter())

    await asyncio.gather(*(client() for _ in range(clients)))
    return sender.replies


async def _open(target: Target, rate: float, seconds: float) -> list[Reply]:
    sender, arrivals = _Sender(target), random.Random(0)
    due = time.perf_counter()
    end, sending = due + seconds, set[asyncio.Task[None]]()
    while (due := due + arrivals.expovariate(rate)) < end and not _stop.is_set():
        while (early := due - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        task = asyncio.create_task(sender.send(due))
        sending.add(task)
        task.add_done_callback(sending.discard)
    await asyncio.gather(*sending)
    return sender.replies


class _Sender:
    """Sends the requests of a target in turn, over as many connections as are busy at once."""

    def __init__(self, target: Target) -> None:
        self._target, self._rows = target, count()
        self._idle: list[_Connection] = []
        self.replies: list[Reply] = []

    async def send(self, intended: float) -> None:
        """Send the next request, and remember what becomes of it."""
        row, late = next(self._rows) % len(self._target.requests), time.perf_counter() - intended
        try:
            async with asyncio.timeout(TIMEOUT):
                status, body = await self._exchange(self._target.requests[row])
        except (OSError, TimeoutError) as error:
            status, body = 0, repr(error).encode()
        self.replies.append(Reply(row, intended, late, time.perf_counter() - intended, status, body))

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                break
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, "127.0.0.1", self._target.port)
        answer = await connection.exchange(request)
        if connection.is_open:
            self._idle.append(connection)
        return answer


class _Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.is_open = cast(asyncio.Transport, transport), True  # uvloop's has another class

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer to a request.

        Raises:
            ConnectionError: if the server closes the connection instead.
        """
        if not self.is_open:  # so soon that it was never made
            raise ConnectionResetError("the server has closed the connection")
        self._received = b""
        self._answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except asyncio.CancelledError:
            self._transport.abort()  # what comes later is no answer to the next request
            raise

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        if len(body) < length or self._answer.done():
            return
        if lines[0].startswith(b"http/1.0") or b"connection: close" in lines:
            self.is_open = False
            self._transport.close()
        self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if hasattr(self, "_answer") and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the server has closed the connection"))
