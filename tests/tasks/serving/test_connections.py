"""Clients that send too much, too slowly, or nothing: what they cost is bounded, and others are answered."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import uvicorn

from include.named_experiments import load
from tasks.serving import connections
from tasks.serving.app import build
from tasks.serving.connections import HEAD_BYTES, Connection
from tasks.serving.metrics import Metrics
from tasks.serving.service import Service
from tests.tasks.serving.conftest import Client, Process, Start

MEGABYTES = 1_000_000


def connect(client: Client, source: str = "127.0.0.1") -> socket.socket:
    address = urlsplit(client.address)
    return socket.create_connection((address.hostname, address.port), 30, (source, 0))


def sent(connection: socket.socket, data: bytes, times: int) -> int:
    """Send data again and again, and return how many bytes were sent until the service closed the connection."""
    for number in range(times):
        try:
            connection.sendall(data)
        except OSError:
            return number * len(data)
    return times * len(data)


def answer(connection: socket.socket) -> HTTPResponse:
    response = HTTPResponse(connection)
    response.begin()
    response.read()
    return response


@contextmanager
def few_files(most: int) -> Iterator[None]:
    """Let processes that are started within the block have no more open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def memory(process: Process) -> int:
    return int(psutil.Process(process.process.pid).memory_info().rss)


@pytest.fixture(scope="module")
def roomy(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A service whose limits are the defaults."""
    process = Process(tmp_path_factory.mktemp("roomy"), f"serving.model={package}", "serving.threads=1")
    process.said("answers from now on")
    yield process
    process.process.kill()


ENDLESS = {
    "header": (b"GET / HTTP/1.1\r\nA: ", b"x" * 1_000_000),
    "headers": (b"GET / HTTP/1.1\r\n", b"A: x\r\n" * 200_000),
    "path": (b"GET /", b"x" * 1_000_000),
    "trailer": (b"POST /query HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nA: ", b"x" * 1_000_000),
    "chunk extension": (b"POST /query HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;", b"x" * 1_000_000),
    "requests": (b"", b"GET /v2 HTTP/1.1\r\n\r\n" * 50_000),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_has_no_end_is_cut_off(service: Process, what: str) -> None:
    start, more = ENDLESS[what]
    before = memory(service)
    with connect(service.client) as endless:
        endless.sendall(start)
        assert sent(endless, more, 40) < 40 * len(more)
    assert service.client.post("/query", {"sentences": "good"}).status == 200
    assert memory(service) < before + 40 * MEGABYTES


def test_a_head_that_is_too_long_is_said(client: Client) -> None:
    with connect(client) as long:
        long.sendall(b"GET / HTTP/1.1\r\nA: " + b"x" * HEAD_BYTES)
        assert long.recv(1000).startswith(b"HTTP/1.1 431 ")
    reply = client.post("/query", {"sentences": "good"}, X_Long="x" * 30_000)
    assert reply.status == 200


def test_a_body_may_be_longer_than_a_head(roomy: Process) -> None:
    body = json.dumps({"sentences": "good " * 100_000}).encode()
    head = f"POST /query HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode()
    with connect(roomy.client) as connection:
        for _ in range(2):  # and the connection stays open
            connection.sendall(head + body + b"\r\n0\r\n\r\n")
            assert answer(connection).status == 200


def test_idle_connections_keep_nobody_out(package: Path, start: Start) -> None:
    with few_files(256):
        process = start(f"serving.model={package}", "serving.threads=1")
    process.said("answers from now on")
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(process.client)) for _ in range(300)]
        slow = b"POST /query HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{"
        for connection in idle[-100:]:
            connection.sendall(slow)
        assert process.client.post("/query", {"sentences": "good"}).status == 200
        assert psutil.Process(process.process.pid).num_fds() < 200
    assert process.stop() == 0


@asynccontextmanager
async def modelless() -> AsyncIterator[int]:
    """The port of a service that has no model yet."""
    app = build(Service(load("retrain").serving, Metrics()))
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=Connection, ws="none", log_config=None))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


def test_a_head_that_does_not_come_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)

    async def wait(port: int) -> None:
        silent, (reader, writer) = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        writer.write(b"GET /v2 HTTP/1.1\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        with suppress(ConnectionError):
            async with asyncio.timeout(10):
                while not reader.at_eof():
                    writer.write(b"G")  # the next request, a byte at a time
                    await asyncio.sleep(0.05)
                    await reader.read(1000)
        assert await silent[0].read() == b""
        for each in (silent[1], writer):
            each.close()

    async def serve() -> None:
        async with modelless() as port:
            await wait(port)

    asyncio.run(serve())


def test_a_body_that_comes_after_its_refusal_keeps_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)

    async def wait() -> None:
        async with modelless() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /query HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n12345")
            assert (await reader.readline()).startswith(b"HTTP/1.1 503")
            writer.write(b"67890")
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 3)
            writer.close()

    asyncio.run(wait())


def test_bodies_that_wait_have_a_budget_of_which_others_have_a_share(roomy: Process) -> None:
    before = memory(roomy)
    body = json.dumps({"sentences": "good " * 190_000}).encode()
    head = f"POST /query HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(300):
            sent(stack.enter_context(connect(roomy.client)), head + body[:-1], 1)
        assert memory(roomy) < before + 150 * MEGABYTES
        assert roomy.client.post("/query", {"sentences": "good"}).status == 200
        with connect(roomy.client, "127.0.0.2") as other:
            other.sendall(head + body)
            assert answer(other).status == 200
        with connect(roomy.client) as same:
            same.sendall(head)
            refusal = answer(same)
            assert (refusal.status, refusal.headers["retry-after"]) == (429, "1")


def test_texts_of_a_megabyte_keep_no_short_one_waiting(package: Path, start: Start) -> None:
    # Each text may take 1/20 of half the deadline, which must be enough while other tests keep the processor busy.
    process = start(f"serving.model={package}", "serving.threads=1", "serving.deadline=100")
    process.said("answers from now on")
    body = json.dumps({"sentences": "good movie " * 90_000}).encode()
    head = f"POST /query HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with ExitStack() as stack:
        large = [stack.enter_context(connect(process.client)) for _ in range(20)]
        for connection in large:
            connection.sendall(head + body)
        statuses = [process.client.post("/query", {"sentences": "good"}).status for _ in range(20)]
        assert set(statuses) == {200}
        assert {answer(connection).status for connection in large} == {200}
